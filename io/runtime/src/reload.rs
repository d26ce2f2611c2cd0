//! What a reload of the configuration has changed.

use std::fmt;

/// The result of [`Handle::reload`](crate::Handle::reload).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    pub faces_added: usize,
    pub faces_removed: usize,
    /// Faces with other settings.
    pub faces_changed: usize,
    pub routes_added: usize,
    pub routes_removed: usize,
    pub strategies_changed: usize,
    /// What else has changed, in words.
    pub others: Vec<String>,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.faces_added, "face", "added"),
            (self.faces_removed, "face", "removed"),
            (self.faces_changed, "face", "changed"),
            (self.routes_added, "route", "added"),
            (self.routes_removed, "route", "removed"),
        ];
        let mut parts: Vec<String> = counts
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, how)| format!("{count} {what}{} {how}", plural(count)))
            .collect();
        match self.strategies_changed {
            0 => {}
            1 => parts.push("1 strategy changed".into()),
            count => parts.push(format!("{count} strategies changed")),
        }
        parts.extend(self.others.iter().cloned());
        if parts.is_empty() {
            return f.write_str("nothing has changed");
        }
        f.write_str(&parts.join(", "))
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_counts_changes() {
        assert_eq!(ReloadReport::default().to_string(), "nothing has changed");
        let report = ReloadReport {
            faces_added: 2,
            routes_removed: 1,
            strategies_changed: 1,
            others: vec!["store 1 MiB".into()],
            ..ReloadReport::default()
        };
        let text = "2 faces added, 1 route removed, 1 strategy changed, store 1 MiB";
        assert_eq!(report.to_string(), text);
    }
}
