//! Job files that run the parts of a sweep on a cluster.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    Slurm,
    Kubernetes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    pub name: String,
    pub text: String,
}

/// The common arguments of `weir lab run`, such as `fig2 --smoke`, each quoted.
fn quoted(arguments: &[String]) -> String {
    let quote = |argument: &String| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=".contains(&b);
        if !argument.is_empty() && argument.bytes().all(is_plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    arguments.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobDivision {
    pub parts: usize,
    pub cores: usize,
    /// Runs at the same time within a part.
    pub jobs: usize,
}

impl JobDivision {
    /// Default number of cores of a part.
    pub const CORES_DEFAULT: usize = 4;
}

/// The job file for the parts of a run. `id` is the scenario's.
pub fn job_file(
    cluster: Cluster,
    id: &str,
    arguments: &[String],
    division: JobDivision,
) -> JobFile {
    match cluster {
        Cluster::Slurm => slurm(id, &quoted(arguments), division),
        Cluster::Kubernetes => kubernetes(id, &quoted(arguments), division),
    }
}

fn slurm(id: &str, arguments: &str, division: JobDivision) -> JobFile {
    let JobDivision { parts, cores, jobs } = division;
    let text = format!(
        "#!/bin/bash
# Runs {id} in {parts} parts: sbatch {id}.sbatch
# Then put them together: weir lab report {id}-part-*
#SBATCH --job-name=weir-{id}
#SBATCH --array=1-{parts}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cores}
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --output=%x-%a.log
# An interrupted part resumes when it is queued again.
#SBATCH --requeue
set -euo pipefail
exec weir lab run {arguments} \\
    --part \"$SLURM_ARRAY_TASK_ID/{parts}\" \\
    --jobs {jobs} \\
    --out \"{id}-part-$SLURM_ARRAY_TASK_ID\"
"
    );
    JobFile { name: format!("{id}.sbatch"), text }
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
              exec weir lab run {arguments}
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
    JobFile { name: format!("{id}-job.yaml"), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Vec<String> {
        ["nb-cache/fig2", "--smoke", "it's"].map(str::to_owned).to_vec()
    }

    #[test]
    fn an_array_has_a_task_for_each_part() {
        let file = job_file(
            Cluster::Slurm,
            "fig2",
            &arguments(),
            JobDivision { parts: 7, cores: 4, jobs: 1 },
        );
        assert_eq!(file.name, "fig2.sbatch");
        assert!(file.text.starts_with("#!/bin/bash\n"));
        assert!(file.text.contains("#SBATCH --array=1-7\n"));
        assert!(file.text.contains(r"weir lab run nb-cache/fig2 --smoke 'it'\''s' \"));
        assert!(file.text.contains("#SBATCH --cpus-per-task=4\n"));
        assert!(file.text.contains("--part \"$SLURM_ARRAY_TASK_ID/7\""));
        assert!(file.text.contains("--jobs 1 "));
    }

    #[test]
    fn an_indexed_job_counts_from_one() {
        let file = job_file(
            Cluster::Kubernetes,
            "a_b",
            &arguments(),
            JobDivision { parts: 3, cores: 2, jobs: 2 },
        );
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
}
