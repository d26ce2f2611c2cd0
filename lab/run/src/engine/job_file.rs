//! Job files that run the shares of a sweep on a cluster.

/// A kind of cluster with job files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    Slurm,
    Kubernetes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    pub name: String,
    pub text: String,
    pub parts: usize,
}

/// `word` as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobDivision {
    pub parts: usize,
    pub cores: usize,
    /// Runs at the same time within a part.
    pub jobs: usize,
}

/// The job file for all parts of a run. `id` is the scenario's, `arguments` are those of `weir`.
pub(crate) fn job_file(
    cluster: Cluster,
    id: &str,
    arguments: &[String],
    division: JobDivision,
) -> JobFile {
    let arguments = arguments.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    match cluster {
        Cluster::Slurm => {
            let JobDivision { parts, cores, jobs } = division;
            let command = format!(
                "weir {arguments} --part \"$SLURM_ARRAY_TASK_ID/{parts}\" --jobs {jobs} --out \
                 \"{id}-part-$SLURM_ARRAY_TASK_ID\""
            );
            let shares: Vec<usize> = (1..=parts).collect();
            JobFile {
                name: format!("{id}.sbatch"),
                text: slurm_script(id, &command, &array(&shares), cores),
                parts,
            }
        }
        Cluster::Kubernetes => kubernetes(id, &arguments, division),
    }
}

/// Numbers as Slurm writes them, such as "1,3-5".
pub(crate) fn array(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// A script that runs `command` as each task of an array.
pub(crate) fn slurm_script(id: &str, command: &str, array: &str, cores: usize) -> String {
    format!(
        "#!/bin/bash
# Runs shares of {id}. With `--job slurm`: sbatch {id}.sbatch
# Then merge their folders: weir lab report {id}-part-*
#SBATCH --job-name=weir-{id}
#SBATCH --array={array}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cores}
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --output=%x-%a.log
#SBATCH --open-mode=append
# A share that is interrupted, or whose node fails, resumes when it is queued again.
#SBATCH --requeue
set -euo pipefail
exec {command}
"
    )
}

fn kubernetes(id: &str, arguments: &str, division: JobDivision) -> JobFile {
    let JobDivision { parts, cores, jobs } = division;
    let name = id.to_ascii_lowercase().replace(['_', '.'], "-");
    let text = format!(
        "# Runs {id} in {parts} parts: kubectl apply -f {id}-job.yaml
# The image must hold the weir program, the claim must be writable by many pods.
# Then merge the parts: weir lab report {id}-part-*
apiVersion: batch/v1
kind: Job
metadata:
  name: weir-{name}
spec:
  completionMode: Indexed
  completions: {parts}
  parallelism: {parts}
  # An interrupted part resumes.
  backoffLimitPerIndex: 3
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: weir
          image: weir:latest
          workingDir: /results
          command: [\"/bin/sh\", \"-c\"]
          args:
            - >-
              part=$((JOB_COMPLETION_INDEX + 1));
              exec weir {arguments}
              --part \"$part/{parts}\" --jobs {jobs} --out \"{id}-part-$part\"
          resources:
            requests: {{ cpu: \"{cores}\", memory: 8Gi }}
            limits: {{ memory: 8Gi }}
          volumeMounts:
            - name: results
              mountPath: /results
      volumes:
        - name: results
          persistentVolumeClaim:
            claimName: weir-results
"
    );
    JobFile { name: format!("{id}-job.yaml"), text, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(cluster: Cluster, id: &str, parts: usize, cores: usize, jobs: usize) -> JobFile {
        let arguments =
            ["lab", "run", "nb-cache/fig2", "--smoke", "it's"].map(str::to_owned).to_vec();
        job_file(cluster, id, &arguments, JobDivision { parts, cores, jobs })
    }

    #[test]
    fn an_array_has_a_task_for_each_part() {
        let file = file(Cluster::Slurm, "fig2", 7, 4, 1);
        assert_eq!(file.name, "fig2.sbatch");
        assert!(file.text.starts_with("#!/bin/bash\n"));
        assert!(file.text.contains("#SBATCH --array=1-7\n"));
        assert!(file.text.contains(r"exec weir lab run nb-cache/fig2 --smoke 'it'\''s' "));
        assert!(file.text.contains("#SBATCH --cpus-per-task=4\n"));
        assert!(file.text.contains("--part \"$SLURM_ARRAY_TASK_ID/7\""));
        assert!(file.text.contains("--jobs 1 "));
    }

    #[test]
    fn an_indexed_job_counts_from_one() {
        let file = file(Cluster::Kubernetes, "a_b", 3, 2, 2);
        assert_eq!(file.name, "a_b-job.yaml");
        for line in [
            "  name: weir-a-b\n",
            "  completionMode: Indexed\n",
            "  completions: 3\n",
            "part=$((JOB_COMPLETION_INDEX + 1));",
            "--part \"$part/3\" --jobs 2",
            "requests: { cpu: \"2\",",
        ] {
            assert!(file.text.contains(line), "{line} in {}", file.text);
        }
    }

    #[test]
    fn an_array_is_written_in_ranges() {
        assert_eq!(array(&[1]), "1");
        assert_eq!(array(&[1, 3, 4, 5, 9]), "1,3-5,9");
    }
}
