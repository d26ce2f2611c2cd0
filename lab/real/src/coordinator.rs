//! Coordinates a run from its start to its end.

use std::time::Duration;

use weir_base::NS_PER_MS;
use weir_client::monotonic_now;
use weir_plan::event::{Event, EventKind, Observer, RouterSample};
use weir_plan::{Fault, Plan};

use super::testbed::Testbed;
use super::{
    AppReport, RealError, RealOptions, RealReport, RouterReport, check, links, merge, proc,
};

/// Time from sending the start to the common start, so that all processes receive it.
const START_AHEAD_NS: u64 = 30 * NS_PER_MS;
/// Additional time for each application, because they receive it one after another.
const START_AHEAD_EACH_NS: u64 = 2 * NS_PER_MS;
/// How long consumers may take to notice the end of the run.
const END_PATIENCE_NS: u64 = 10_000 * NS_PER_MS;
/// How long an application may take to report.
const REPORT_PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn run(
    plan: &Plan,
    options: &RealOptions,
    observer: &mut dyn Observer,
) -> Result<RealReport, RealError> {
    let mut run = Run::new(plan, options)?;
    run.testbed.start()?;
    run.begin()?;
    run.run_until_done()?;
    let mut report = run.end()?;
    run.events.sort_by_key(|event| (event.at_ns, event.node));
    let files: Vec<_> =
        run.testbed.apps.iter().map(|(&node, app)| (node as u32, app.events.clone())).collect();
    report.events = merge::merge(&files, &run.events, observer)
        .map_err(|source| RealError::System { what: "cannot read the events".into(), source })?;
    Ok(report)
}

/// A task due at a time of the run.
#[derive(Clone, Copy, Debug)]
enum Task {
    Sample,
    FaultBegins(usize),
    FaultEnds(usize),
}

struct Run<'a> {
    plan: &'a Plan,
    options: &'a RealOptions,
    testbed: Testbed<'a>,
    start_ns: u64,
    /// Tasks by time, the next one last.
    tasks: Vec<(u64, Task)>,
    down_routers: Vec<usize>,
    events: Vec<Event>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, options: &'a RealOptions) -> Result<Self, RealError> {
        let mut tasks = Vec::new();
        if let Some(samples) = (plan.duration_ns + plan.drain_ns).checked_div(plan.sample_ns) {
            tasks.extend((1..=samples).map(|at| (at * plan.sample_ns, Task::Sample)));
        }
        for (index, planned) in plan.faults.iter().enumerate() {
            let end_ns = planned.at_ns.saturating_add(planned.fault.for_ns());
            tasks.push((planned.at_ns, Task::FaultBegins(index)));
            tasks.push((end_ns, Task::FaultEnds(index)));
        }
        // Latest first, so that `pop` takes the next task.
        tasks.sort_by_key(|&(at_ns, _)| std::cmp::Reverse(at_ns));
        Ok(Self {
            plan,
            options,
            testbed: Testbed::new(plan, options)?,
            start_ns: 0,
            tasks,
            down_routers: Vec::new(),
            events: Vec::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        monotonic_now().as_ns().saturating_sub(self.start_ns)
    }

    fn end_ns(&self) -> u64 {
        self.plan.duration_ns.saturating_add(self.plan.drain_ns)
    }

    /// Starts counting, and the clock of the run.
    fn begin(&mut self) -> Result<(), RealError> {
        for router in self.testbed.routers.values_mut() {
            router.begin()?;
        }
        let apps = self.testbed.app_nodes();
        // The start lies in the future, so that all processes know it before it comes.
        let ahead_ns = START_AHEAD_NS + START_AHEAD_EACH_NS * apps.len() as u64;
        self.start_ns = monotonic_now().as_ns() + ahead_ns;
        for node in apps {
            self.testbed.send_line(node, &format!("start {}", self.start_ns))?;
        }
        Ok(())
    }

    /// Runs until all consumers are done or the time is over.
    fn run_until_done(&mut self) -> Result<(), RealError> {
        loop {
            let now_ns = self.now_ns();
            let is_started = monotonic_now().as_ns() >= self.start_ns;
            let mut consumers = self.testbed.apps.values().filter(|app| app.is_consumer).peekable();
            let is_over = match consumers.peek() {
                Some(_) => consumers.all(|app| app.is_done),
                None => is_started && now_ns >= self.end_ns(),
            };
            // A run must not end with a router down: its final counters would be missing.
            if is_over && self.down_routers.is_empty() {
                return Ok(());
            }
            if now_ns > self.end_ns().saturating_add(END_PATIENCE_NS) {
                return Err(self.unfinished());
            }
            while let Some(&(at_ns, task)) = self.tasks.last()
                && is_started
                && at_ns <= now_ns
            {
                self.tasks.pop();
                self.carry_out(task)?;
            }
            // Wait for output until the next task is due.
            let next_ns = self.tasks.last().map_or(u64::MAX, |&(at_ns, _)| at_ns);
            let next_ns =
                next_ns.saturating_add(self.start_ns).saturating_sub(monotonic_now().as_ns());
            self.testbed.poll_outputs(Duration::from_nanos(next_ns))?;
        }
    }

    fn unfinished(&mut self) -> RealError {
        let mut apps = self.testbed.apps.values_mut();
        match apps.find(|app| app.is_consumer && !app.is_done) {
            Some(app) => app.process.failure("did not end with the run"),
            // A fault keeps a router down beyond the end of the run.
            None => RealError::Unsupported("a fault lasts beyond the end of the run".into()),
        }
    }

    fn carry_out(&mut self, task: Task) -> Result<(), RealError> {
        match task {
            Task::Sample => self.sample(),
            Task::FaultBegins(index) => self.change_fault(index, true),
            Task::FaultEnds(index) => self.change_fault(index, false),
        }
    }

    fn sample(&mut self) -> Result<(), RealError> {
        for (&node, router) in &mut self.testbed.routers {
            if !self.down_routers.contains(&node) {
                let (sample, queues) = router.sample_with_queues()?;
                // The time after the reply: a busy router replies late, and its counters are then
                // later too.
                let at_ns = monotonic_now().as_ns().saturating_sub(self.start_ns);
                let has_disk = check::disk(self.plan, node).is_some();
                let lengths = queues.lengths().into_iter().filter(|_| has_disk);
                let lengths =
                    lengths.map(|(queue, packets)| EventKind::QueueLength { queue, packets });
                for kind in lengths.chain([EventKind::RouterSample(Box::new(sample))]) {
                    self.events.push(Event { at_ns, node: node as u32, kind });
                }
            }
        }
        Ok(())
    }

    fn change_fault(&mut self, index: usize, begins: bool) -> Result<(), RealError> {
        let node = match self.plan.faults[index].fault {
            Fault::LinkDown { link, .. } => {
                if let Some(emulated) = self.testbed.links.get(&link) {
                    emulated.set_up(!begins);
                }
                self.plan.links[link].a
            }
            Fault::LinkSlow { link, share, .. } => {
                if let Some(emulated) = self.testbed.links.get(&link) {
                    emulated.set_rate_share(if begins { share } else { 1.0 });
                }
                self.plan.links[link].a
            }
            Fault::Crash { node, .. } if begins => {
                self.testbed.crash(node)?;
                self.down_routers.push(node);
                node
            }
            Fault::Crash { node, .. } => {
                self.testbed.restart_router(node)?;
                self.down_routers.retain(|&away| away != node);
                node
            }
            Fault::StoreStall { node, .. } => {
                self.testbed.stall_disks(node, None, begins)?;
                node
            }
            Fault::DiskStall { node, disk, .. } => {
                self.testbed.stall_disks(node, Some(disk), begins)?;
                node
            }
            // The check before the start rejects these.
            Fault::DiskErrors { node, .. }
            | Fault::DiskDamage { node, .. }
            | Fault::DiskFull { node, .. } => node,
            Fault::WrongBytes { link, .. } => self.plan.links[link].a,
        };
        let at_ns = self.now_ns();
        let kind = EventKind::FaultChanged { fault: index as u32, begins };
        self.events.push(Event { at_ns, node: node as u32, kind });
        Ok(())
    }

    /// Collects the reports, and ends all processes.
    fn end(&mut self) -> Result<RealReport, RealError> {
        let elapsed_ns = self.now_ns();
        let mut report = RealReport {
            elapsed_ns,
            cpu_router: self.cores(&self.options.cpu_router)?,
            cpu_apps: self.cores(&self.options.cpu_apps)?,
            ..RealReport::default()
        };
        for (&node, router) in &mut self.testbed.routers {
            let sample = router.sample()?;
            if self.plan.sample_ns > 0 {
                let kind = EventKind::RouterSample(Box::new(sample));
                self.events.push(Event { at_ns: elapsed_ns, node: node as u32, kind });
            }
            report.routers.push(router_report(node, &router.name, &sample, elapsed_ns));
        }
        report.apps = self.end_apps(elapsed_ns)?;
        // The links stop last, because processes still send while they end.
        self.testbed.stop()?;
        let mut emulator_ns = 0;
        for (&index, link) in &mut self.testbed.links {
            let stats = link.finish()?;
            emulator_ns += stats.processor_ns;
            let plan = &self.plan.links[index];
            self.events.extend(links::samples(index, plan, &stats, elapsed_ns));
        }
        report.emulator_utilisation = share(emulator_ns, elapsed_ns);
        Ok(report)
    }

    fn cores(&self, requested: &[usize]) -> Result<Vec<usize>, RealError> {
        if !requested.is_empty() {
            return Ok(requested.to_vec());
        }
        proc::cores()
            .map_err(|source| RealError::System { what: "cannot count cores".into(), source })
    }

    fn end_apps(&mut self, elapsed_ns: u64) -> Result<Vec<AppReport>, RealError> {
        let nodes = self.testbed.app_nodes();
        self.testbed.expect_ends();
        for &node in &nodes {
            self.testbed.send_line(node, "stop")?;
        }
        let deadline = std::time::Instant::now() + REPORT_PATIENCE;
        let mut reports = Vec::new();
        for node in nodes {
            let line = self.testbed.line_with(node, "report", deadline)?;
            let mut report: AppReport = serde_json::from_value(line["report"].clone())
                .map_err(|_| self.testbed.failure_of(node))?;
            report.utilisation = share(report.cpu_ns, elapsed_ns);
            reports.push(report);
        }
        for app in self.testbed.apps.values_mut() {
            app.process.wait()?;
        }
        debug_assert!(reports.iter().all(|app| !check::is_router(self.plan, app.node as usize)));
        Ok(reports)
    }
}

fn share(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns.max(1) as f64
}

fn router_report(node: usize, name: &str, sample: &RouterSample, elapsed_ns: u64) -> RouterReport {
    RouterReport {
        node: node as u32,
        name: name.to_owned(),
        cpu_ns: sample.cpu_ns,
        utilisation: share(sample.cpu_ns, elapsed_ns),
        packets_in: sample.in_interests + sample.in_data,
        packets_out: sample.out_interests + sample.out_data,
        pit_entries: sample.pit_entries,
    }
}
