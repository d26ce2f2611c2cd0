//! The origin: channels encoded once by ffmpeg, written by the channel source, served by nginx.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weir_base::NS_PER_S;
use weir_scenario::trial::Video;

use super::super::super::RealError;
use super::super::hls::{LOOP_SEGMENTS, QUALITIES, Quality, SEGMENT_NS, channel_name};
use super::super::processes::{GroupProcessId, find, write};
use super::super::role::{ENCODED, Role, SERVED};
use super::{PAUSE, Setup, free_address, get, system};

const RTMP_MODULE: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";
/// Frames in a second.
const FRAME_RATE: u64 = 25;

pub(super) struct Programs {
    ffmpeg: PathBuf,
    nginx: PathBuf,
}

impl Programs {
    /// Finds the programs, or says what to install.
    pub(super) fn find(video: &Video) -> Result<Self, String> {
        let missing = |program: &str, package: &str| {
            format!("{program} is not installed here; on Debian: apt install {package}")
        };
        if video.rtmp && !Path::new(RTMP_MODULE).is_file() {
            return Err(missing("nginx's RTMP module", "libnginx-mod-rtmp"));
        }
        Ok(Self {
            ffmpeg: find("ffmpeg").ok_or_else(|| missing("ffmpeg", "ffmpeg"))?,
            nginx: find("nginx").ok_or_else(|| missing("nginx", "nginx-light"))?,
        })
    }
}

/// Starts the origin. Returns its address, and the channel source.
pub(super) fn start(
    setup: &mut Setup<'_, '_>,
    programs: &Programs,
) -> Result<(SocketAddr, GroupProcessId), RealError> {
    for folder in [ENCODED, SERVED] {
        std::fs::create_dir_all(setup.folder.join(folder))
            .map_err(system("cannot create a folder for segments"))?;
    }
    encode(setup, &programs.ffmpeg)?;
    let at = setup.folder.display().to_string();
    let (source, _) = setup.group.start_role(Role::Broadcast, setup.trial, &at, 0, "")?;
    setup.working.push(source);
    let (http, rtmp) = (free_address()?, free_address()?);
    let config = setup.group.dir().join("nginx.conf");
    write(&config, nginx_text(setup, http, rtmp).as_bytes())?;
    let (config, prefix) = (config.display().to_string(), setup.group.dir().display().to_string());
    let nginx = setup.group.program(&programs.nginx, &["-p", &prefix, "-c", &config])?;
    setup.working.push(nginx);
    // The server answers 404 as soon as it runs.
    while matches!(get(&format!("http://{http}/")), Err(error) if !has_status(&error)) {
        setup.group.rest(PAUSE, &setup.working)?;
    }
    if setup.video().rtmp {
        send_live(setup, &programs.ffmpeg, rtmp)?;
    }
    Ok((http, source))
}

fn has_status(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::StatusCode(_))
}

/// Encodes the segments of a channel in all qualities.
fn encode(setup: &mut Setup<'_, '_>, ffmpeg: &Path) -> Result<(), RealError> {
    let arguments = encoder_arguments(&setup.folder.join(ENCODED));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let id = setup.group.program(ffmpeg, &arguments)?;
    match setup.group.output(id)? {
        (_, true) => Ok(()),
        (_, false) => Err(setup.group.failure(id, "did not encode the channel")),
    }
}

/// Arguments of ffmpeg for a moving test picture with a constant bit rate. Each segment begins with
/// a key frame.
fn encoder_arguments(folder: &Path) -> Vec<String> {
    let highest = &QUALITIES[QUALITIES.len() - 1];
    let segment_s = SEGMENT_NS / NS_PER_S;
    let picture = format!("testsrc2=size={}x{}:rate={FRAME_RATE}", highest.width, highest.height);
    let length_s = (LOOP_SEGMENTS * segment_s).to_string();
    let common = ["-nostdin", "-loglevel", "error", "-f", "lavfi", "-t", &length_s, "-i", &picture];
    let mut arguments: Vec<String> = common.map(str::to_owned).to_vec();
    let key_frames = (FRAME_RATE * segment_s).to_string();
    let segment_s = segment_s.to_string();
    for Quality { name, width, height, rate_bps } in &QUALITIES {
        let (rate, scale) = (rate_bps.to_string(), format!("scale={width}:{height}"));
        let file = folder.join(format!("{name}-%d.ts")).display().to_string();
        let of_quality = [
            ["-vf", &scale],
            ["-c:v", "libx264"],
            ["-preset", "ultrafast"],
            ["-pix_fmt", "yuv420p"],
            ["-b:v", &rate],
            ["-minrate", &rate],
            ["-maxrate", &rate],
            ["-bufsize", &rate],
            ["-x264-params", "nal-hrd=cbr"],
            ["-g", &key_frames],
            ["-keyint_min", &key_frames],
            ["-sc_threshold", "0"],
            ["-f", "segment"],
            ["-segment_time", &segment_s],
            ["-segment_format", "mpegts"],
        ];
        arguments.extend(of_quality.as_flattened().iter().map(|&word| word.to_owned()));
        arguments.push(file);
    }
    arguments
}

/// Sends the first channel in real time over RTMP to nginx, which makes its segments.
fn send_live(
    setup: &mut Setup<'_, '_>,
    ffmpeg: &Path,
    server: SocketAddr,
) -> Result<(), RealError> {
    let mut arguments = vec!["-nostdin".to_owned(), "-loglevel".into(), "error".into()];
    let mut outputs = Vec::new();
    for (place, Quality { name, .. }) in QUALITIES.iter().enumerate() {
        let file = setup.folder.join(format!("{name}.ts"));
        let mut whole = Vec::new();
        for number in 0..LOOP_SEGMENTS {
            let segment = setup.folder.join(ENCODED).join(format!("{name}-{number}.ts"));
            whole.extend(std::fs::read(segment).map_err(system("cannot read a segment"))?);
        }
        write(&file, &whole)?;
        let input = ["-re", "-stream_loop", "-1", "-i", &file.display().to_string()];
        arguments.extend(input.map(str::to_owned));
        let url = format!("rtmp://{server}/{}/{name}", channel_name(0));
        let output = ["-map", &format!("{place}:v"), "-c", "copy", "-f", "flv", &url];
        outputs.extend(output.map(str::to_owned));
    }
    arguments.extend(outputs);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let id = setup.group.program(ffmpeg, &arguments)?;
    setup.working.push(id);
    Ok(())
}

/// One process that serves FOLDER at HTTP and writes only to DIR. Playlists are fresh for half the
/// duration of a segment, so that players see a new segment when they load the playlist again.
const NGINX: &str = "
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_body_temp_path DIR/b;
    proxy_temp_path DIR/p;
    fastcgi_temp_path DIR/f;
    uwsgi_temp_path DIR/u;
    scgi_temp_path DIR/s;
    types { application/vnd.apple.mpegurl m3u8; video/mp2t ts; }
    server {
        listen HTTP;
        root FOLDER;
        location ~ m3u8$ { add_header Cache-Control max-age=1; }
        location ~ ts$ { add_header Cache-Control max-age=3600; }
    }
}
";

/// Makes HLS segments of what it receives over RTMP, as the channel source does.
const NGINX_RTMP: &str = "
rtmp {
    access_log off;
    server {
        listen RTMP;
        application CHANNEL {
            live on;
            hls on;
            hls_path FOLDER/CHANNEL;
            hls_nested on;
            hls_fragment 2s;
            hls_playlist_length 12s;
            hls_cleanup off;
        }
    }
}
";

fn nginx_text(setup: &Setup<'_, '_>, http: SocketAddr, rtmp: SocketAddr) -> String {
    let text = match setup.video().rtmp {
        true => format!("load_module {RTMP_MODULE};\n{NGINX}{NGINX_RTMP}"),
        false => NGINX.to_owned(),
    };
    text.replace("DIR", &setup.group.dir().display().to_string())
        .replace("FOLDER", &setup.folder.join(SERVED).display().to_string())
        .replace("HTTP", &http.to_string())
        .replace("RTMP", &rtmp.to_string())
        .replace("CHANNEL", &channel_name(0))
}
