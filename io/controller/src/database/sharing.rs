//! What the controllers of a database share: change numbers, run numbers, and plans. `follow.rs`
//! explains how they work together.

use std::collections::BTreeMap;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};
use weir_base::units::saturating_i64;
use weir_control::Plan;
use weir_wire::Name;

use super::rows::{self, Unreadable, json, unsigned};
use super::transaction::Transaction;
use super::unreadable::Select;
use super::{Database, DatabaseError, FileRow, PLAN, PLAN_KEY, Record, audit};

/// The step between two numbers of plans and configurations of one controller. The last three
/// digits say which controller gave a number.
pub(crate) const NUMBER_STEP: u64 = 1000;

/// A controller of the database that was not stopped cleanly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControllerRow {
    pub(crate) run: u64,
    pub(crate) url: String,
    /// Rises while the controller runs and reaches the database.
    pub(crate) beat: u64,
}

pub(crate) enum FileChange {
    Added(FileRow),
    Withdrawn(Name),
    /// The file exists, but its row cannot be read.
    Unreadable(Name),
}

/// Changes read from the database.
pub(crate) struct Changes {
    /// The number of the last change included.
    pub(crate) change: u64,
    /// Whether `files` contains all files, not only changed ones.
    pub(crate) is_complete: bool,
    /// In the order of changes.
    pub(crate) files: Vec<FileChange>,
    /// The newest plan of each changed object, in the order of numbers.
    pub(crate) plans: Vec<Plan>,
    /// Routers, with the run number of the controller that each reports to; 0 for none.
    pub(crate) routers: Vec<(String, u64)>,
    pub(crate) controllers: Vec<ControllerRow>,
    /// The highest run number.
    pub(crate) last_run: u64,
}

fn file(row: &AnyRow) -> Result<(u64, FileChange), Unreadable> {
    Ok((unsigned(row, "change")?, FileChange::Added(rows::file(row)?)))
}

fn controller_row(row: &AnyRow) -> Result<ControllerRow, Unreadable> {
    let (run, beat) = (unsigned(row, "run")?, unsigned(row, "beat")?);
    Ok(ControllerRow { run, url: row.try_get("url")?, beat })
}

/// Increments a counter and returns it. Other transactions that do so wait until this one ends.
pub(super) async fn next_value(to: &mut AnyConnection, name: &str) -> Result<i64, sqlx::Error> {
    let sql = "UPDATE numbers SET value = value + 1 WHERE name = $1 RETURNING value";
    let rows = sqlx::query(sql).bind(name).fetch_all(to).await?;
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get("value")
}

/// Writes a plan if it follows the newest plan of its object, or if that one is an end. Returns
/// whether the plan is in the database now.
async fn write_plan(
    to: &mut AnyConnection,
    plan: &Plan,
    follows: u64,
    made_ms: u64,
    change: i64,
) -> Result<bool, sqlx::Error> {
    // The inner query returns 1 if the newest plan is `follows` or an end, and nothing if there is
    // no plan.
    let sql = "INSERT INTO plans (number, parent, object, made_ms, body, change, ends) \
               SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS TEXT), \
               CAST($4 AS BIGINT), CAST($5 AS TEXT), CAST($6 AS BIGINT), CAST($7 AS BIGINT) \
               WHERE COALESCE((SELECT CASE WHEN number = $8 THEN 1 ELSE ends END FROM plans \
               WHERE object = $3 ORDER BY number DESC LIMIT 1), 1) = 1 \
               ON CONFLICT (number) DO NOTHING";
    let done = sqlx::query(sql)
        .bind(saturating_i64(plan.number))
        .bind(saturating_i64(plan.parent))
        .bind(plan.object.to_string())
        .bind(saturating_i64(made_ms))
        .bind(json(plan))
        .bind(change)
        .bind(i64::from(plan.is_end()))
        .bind(saturating_i64(follows))
        .execute(&mut *to)
        .await?;
    if done.rows_affected() > 0 {
        return Ok(true);
    }
    // The row may exist from an earlier attempt whose answer was lost.
    let sql = "SELECT number FROM plans WHERE number = $1 AND object = $2";
    let query = sqlx::query(sql).bind(saturating_i64(plan.number)).bind(plan.object.to_string());
    Ok(query.fetch_optional(to).await?.is_some())
}

impl Database {
    /// Registers a starting controller and returns its run number.
    pub(crate) async fn register_controller(
        &self,
        url: &str,
        began_ms: u64,
    ) -> Result<u64, DatabaseError> {
        self.with_timeout(async {
            let mut transaction = Transaction::begin(&self.pool).await?;
            let run = next_value(&mut transaction, "run").await?;
            let sql = "INSERT INTO controllers (run, url, began_ms, beat) VALUES ($1, $2, $3, 0)";
            let query = sqlx::query(sql).bind(run).bind(url).bind(saturating_i64(began_ms));
            query.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(u64::try_from(run).unwrap_or(0))
        })
        .await
    }

    /// Increments the beat of a controller. Returns whether its row still exists.
    pub(crate) async fn heartbeat(&self, run: u64) -> Result<bool, DatabaseError> {
        let sql = "UPDATE controllers SET beat = beat + 1 WHERE run = $1";
        let query = sqlx::query(sql).bind(saturating_i64(run));
        let done = self.with_timeout(async { Ok(query.execute(&self.pool).await?) }).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Removes the row of a controller that stops or has been gone for long.
    pub(crate) async fn remove_controller(&self, run: u64) -> Result<(), DatabaseError> {
        let query = sqlx::query("DELETE FROM controllers WHERE run = $1").bind(saturating_i64(run));
        self.with_timeout(async { Ok(query.execute(&self.pool).await.map(drop)?) }).await
    }

    /// Writes all records or none, for controller `run`. Plans that do not follow the newest plan
    /// of their object are left out, because another controller was first. Returns the objects of
    /// these plans.
    pub(crate) async fn write(
        &self,
        run: u64,
        records: &[Record],
    ) -> Result<Vec<Name>, DatabaseError> {
        // Audit lines alone are no shared change, so they need no change number.
        let is_shared = |record: &Record| !matches!(record, Record::Audit { .. });
        self.with_timeout(async {
            let (mut transaction, change) = match records.iter().any(is_shared) {
                true => self.begin_change().await?,
                false => (Transaction::begin(&self.pool).await?, 0),
            };
            let mut conflicts = Vec::new();
            for record in records {
                match record {
                    Record::Plan { plan, follows, made_ms } => {
                        let to = &mut transaction;
                        if !write_plan(to, plan, *follows, *made_ms, change).await? {
                            let line = Record::Audit {
                                at_ms: *made_ms,
                                who: "controller".to_owned(),
                                action: "plan overtaken",
                                detail: format!("{} for {}", plan.number, plan.object),
                            };
                            audit(&mut transaction, &line).await?;
                            conflicts.push(plan.object.clone());
                        }
                    }
                    Record::Router { name, seen_ms, body } => {
                        let sql = "INSERT INTO routers (name, seen_ms, body, run, change) \
                                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE \
                                   SET seen_ms = $2, body = $3, run = $4, change = $5";
                        let query =
                            sqlx::query(sql).bind(name).bind(saturating_i64(*seen_ms)).bind(body);
                        let query = query.bind(saturating_i64(run)).bind(change);
                        query.execute(&mut *transaction).await?;
                    }
                    Record::RouterLost { name, run: former, seen_ms } => {
                        let sql = "UPDATE routers SET run = 0, change = $3, \
                                   seen_ms = COALESCE(CAST($4 AS BIGINT), seen_ms) \
                                   WHERE name = $1 AND run = $2";
                        let run = saturating_i64(former.unwrap_or(run));
                        let query = sqlx::query(sql).bind(name).bind(run).bind(change);
                        let query = query.bind(seen_ms.map(saturating_i64));
                        query.execute(&mut *transaction).await?;
                    }
                    Record::Audit { .. } => audit(&mut transaction, record).await?,
                }
            }
            transaction.commit().await?;
            Ok(conflicts)
        })
        .await
    }

    /// The changes after a change number, or everything.
    pub(crate) async fn changes_since(&self, since: Option<u64>) -> Result<Changes, DatabaseError> {
        self.with_timeout(self.read_changes(since)).await
    }

    async fn read_changes(&self, since: Option<u64>) -> Result<Changes, DatabaseError> {
        let (key, columns) = ("name", "name, value");
        let select = Select { what: "number", key, columns, from: "numbers" };
        let numbers = self.select(&select, &[], rows::number).await?;
        if !numbers.unreadable.is_empty() {
            return Err(DatabaseError::Unreadable("a number that controllers count together"));
        }
        let numbers: BTreeMap<String, u64> = numbers.read.into_iter().collect();
        // Without a counter, all changes would look old and would be missed.
        let number = |name: &str| {
            let number = numbers.get(name).copied();
            number.ok_or(DatabaseError::Unreadable("a number that controllers count together"))
        };
        let (key, columns) = ("CAST(run AS TEXT)", "run, url, beat");
        let select = Select { what: "controller", key, columns, from: "controllers" };
        let controllers = self.select(&select, &[], controller_row).await?.read;
        let (change, forgotten) = (number("change")?, number("forgotten")?);
        let is_whole = since.is_none_or(|since| since < forgotten);
        let mut changes = Changes {
            change,
            is_complete: is_whole,
            files: Vec::new(),
            plans: Vec::new(),
            routers: Vec::new(),
            controllers,
            last_run: number("run")?,
        };
        if since == Some(change) {
            return Ok(changes);
        }
        // Only changes after `since`, up to the number read above. Later ones follow with the next
        // read.
        let range = since.filter(|_| !is_whole).map(|since| [since + 1, change]);
        let numbers = range.as_ref().map_or(&[][..], |range| &range[..]);
        changes.files = self.file_changes(numbers).await?;
        let from = match is_whole {
            true => {
                "plans p WHERE NOT EXISTS (SELECT 1 FROM plans q WHERE q.object = p.object \
                 AND q.number > p.number) ORDER BY p.number"
            }
            false => {
                "plans p WHERE p.change >= $1 AND p.change <= $2 \
                 AND NOT EXISTS (SELECT 1 FROM plans q WHERE q.object = p.object \
                 AND q.number > p.number) ORDER BY p.number"
            }
        };
        let select = Select { what: "plan", key: PLAN_KEY, columns: PLAN, from };
        changes.plans = self.select(&select, numbers, rows::plan).await?.read;
        let from = match is_whole {
            true => "routers",
            false => "routers WHERE change >= $1 AND change <= $2",
        };
        let select = Select { what: "router", key: "name", columns: "name, run", from };
        changes.routers = self.select(&select, numbers, rows::router).await?.read;
        Ok(changes)
    }

    /// The file changes between two numbers, or all files.
    async fn file_changes(&self, numbers: &[u64]) -> Result<Vec<FileChange>, DatabaseError> {
        let (files, withdrawn) = match numbers {
            [] => ("files", "withdrawn"),
            _ => (
                "files WHERE change >= $1 AND change <= $2",
                "withdrawn WHERE change >= $1 AND change <= $2",
            ),
        };
        let (key, columns) = ("name", "name, change, owner, body");
        let select = Select { what: "file", key, columns, from: files };
        let added = self.select(&select, numbers, file).await?;
        let (key, columns) = ("name", "change, name");
        let select = Select { what: "withdrawn file", key, columns, from: withdrawn };
        let withdrawn = self.select(&select, numbers, rows::withdrawn).await?.read;
        let mut changes = added.read;
        for (_, change) in &changes {
            if let FileChange::Added(row) = change {
                self.unreadable.forget("file", &row.file.name.to_string());
            }
        }
        for (_, name) in &withdrawn {
            let name = name.to_string();
            if !added.unreadable.contains(&name) {
                self.unreadable.forget("file", &name);
            }
        }
        let withdrawn = withdrawn.into_iter();
        changes.extend(withdrawn.map(|(change, name)| (change, FileChange::Withdrawn(name))));
        changes.sort_by_key(|(change, _)| *change);
        let garbled = added.unreadable.iter().filter_map(|name| name.parse().ok());
        let garbled = garbled.map(FileChange::Unreadable);
        Ok(changes.into_iter().map(|(_, change)| change).chain(garbled).collect())
    }

    /// The newest plan of an object. A row that is not a valid plan becomes an end, so that other
    /// plans may follow it.
    pub(crate) async fn newest_plan(
        &self,
        object: &Name,
        can_be: impl Fn(&Plan) -> bool,
    ) -> Result<Option<Plan>, DatabaseError> {
        let sql = "SELECT number FROM plans WHERE object = $1 ORDER BY number DESC LIMIT 1";
        let query = sqlx::query(sql).bind(object.to_string());
        let row = self.with_timeout(async { Ok(query.fetch_optional(&self.pool).await?) }).await?;
        let Some(row) = row else { return Ok(None) };
        let number = unsigned(&row, "number").map_err(|_| DatabaseError::Unreadable("a plan"))?;
        let from = "plans WHERE number = $1";
        let select = Select { what: "plan", key: PLAN_KEY, columns: PLAN, from };
        let read = self.with_timeout(self.select(&select, &[number], rows::plan)).await?.read;
        match read.into_iter().next() {
            Some(plan) if can_be(&plan) => return Ok(Some(plan)),
            Some(_) => self.note_invalid_plan(number),
            None => {}
        }
        let query =
            sqlx::query("UPDATE plans SET ends = 1 WHERE number = $1").bind(saturating_i64(number));
        self.with_timeout(async { Ok(query.execute(&self.pool).await?) }).await?;
        let (consumers, parts, spread) = (Vec::new(), Vec::new(), Vec::new());
        let (object, parent) = (object.clone(), 0);
        Ok(Some(Plan { number, parent, object, consumers, parts, spread }))
    }

    /// Records that a plan is invalid for its file.
    pub(crate) fn note_invalid_plan(&self, number: u64) {
        self.unreadable.note("plan", &number.to_string(), "the plan is invalid for its file");
    }
}
