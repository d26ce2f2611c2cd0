use super::*;
use tempfile::TempDir;
use weir_control::Part;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn file(text: &str) -> File {
    let (name, manifest) = (name(text), Vec::new());
    File { name, segments: 10, size_bytes: 80_000, packet_bytes: 8200, manifest }
}

fn plan(number: u64, parent: u64, object: &str) -> Plan {
    let parts = vec![Part { router: "r".to_owned(), first: 0, last: 9 }];
    let (consumers, spread) = (vec!["c".to_owned()], Vec::new());
    Plan { number, parent, object: name(object), consumers, parts, spread }
}

fn end(number: u64, parent: u64, object: &str) -> Plan {
    Plan { parts: Vec::new(), consumers: Vec::new(), ..plan(number, parent, object) }
}

fn record(plan: Plan) -> Record {
    Record::Plan { follows: plan.parent, plan, made_ms: 1 }
}

async fn database(folder: &TempDir) -> Database {
    Database::open(&folder.path().join("controller.db").into(), None).await.unwrap()
}

/// The numbers of all plans in the database.
async fn numbers(database: &Database) -> Vec<u64> {
    let rows = database.plans(u64::MAX, 1000).await.unwrap();
    rows.iter().rev().map(|row| row.plan.number).collect()
}

/// If two controllers plan at once, one is first. Plans that the other one has based on its own
/// plan are refused as well.
#[tokio::test]
async fn followers_of_a_conflict_are_conflicts() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(&folder).await;
    let conflicts = async |run, plans: Vec<Plan>| {
        let records: Vec<Record> = plans.into_iter().map(record).collect();
        database.write(run, &records).await.unwrap()
    };
    assert_eq!(conflicts(1, vec![plan(1001, 0, "/a")]).await, []);
    // In one batch, as after an outage; then again, before it has read the conflict.
    let both = vec![plan(2002, 0, "/a"), plan(3002, 2002, "/a"), plan(4002, 0, "/b")];
    assert_eq!(conflicts(2, both).await, [name("/a"), name("/a")]);
    assert_eq!(conflicts(2, vec![plan(5002, 3002, "/a")]).await, [name("/a")]);
    // Again, because its answer was lost.
    assert_eq!(conflicts(2, vec![plan(4002, 0, "/b")]).await, []);
    // It has adopted the newest plan.
    assert_eq!(conflicts(2, vec![plan(6002, 1001, "/a")]).await, []);
    assert_eq!(conflicts(1, vec![plan(7001, 1001, "/a")]).await, [name("/a")]);
    // Any controller may start after an end.
    assert_eq!(conflicts(2, vec![end(8002, 6002, "/a")]).await, []);
    assert_eq!(conflicts(1, vec![plan(9001, 0, "/a")]).await, []);
    assert_eq!(numbers(&database).await, [1001, 4002, 6002, 8002, 9001]);
}

#[tokio::test]
async fn prunes_ended_plans() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(&folder).await;
    let mut plans = vec![plan(1001, 0, "/kept"), plan(2001, 1001, "/kept")];
    for at in 0..100 {
        let object = format!("/{at}");
        let first = (3 + 2 * at) * 1000 + 1;
        plans.extend([plan(first, 0, &object), end(first + 1000, first, &object)]);
    }
    let records: Vec<Record> = plans.into_iter().map(record).collect();
    assert_eq!(database.write(1, &records).await.unwrap(), []);
    database.prune(1_000_000, 10).await.unwrap();
    let left = numbers(&database).await;
    // The newest plan of a planned object stays, however old; of ended objects only recent ends
    // stay.
    assert_eq!((left[0], left.len()), (2001, 11));
    assert!(left[1..].iter().all(|number| *number > 190_000), "{left:?}");
    let changes = database.changes_since(None).await.unwrap();
    assert!(changes.plans.iter().any(|plan| plan.object == name("/kept")));
}

/// A database of an older version, with only the first migrations.
async fn old_database(folder: &TempDir, steps: usize) -> DatabaseLocation {
    let place: DatabaseLocation = folder.path().join("controller.db").into();
    sqlx::any::install_default_drivers();
    let pool =
        AnyPoolOptions::new().connect_with(place.options().unwrap().remove(0)).await.unwrap();
    let Migrator { migrations, .. } = migrator(false);
    let migrations = Cow::Owned(migrations[..steps].to_vec());
    Migrator { migrations, ..Migrator::DEFAULT }.run(&pool).await.unwrap();
    let token = "INSERT INTO tokens (id, hash, role, name, created_ms, expires_ms) \
                 VALUES ('0011223344556677', x'00', 'producer', 'p', 5, NULL)";
    let router = "INSERT INTO routers (name, seen_ms, body) VALUES ('r', 7, '{}')";
    let line = "INSERT INTO audit (at_ms, who, action, detail) \
                VALUES (6, 'command line', 'token added', 'p')";
    for sql in [token, router, line] {
        sqlx::query(sql).execute(&pool).await.unwrap();
    }
    let sql = "INSERT INTO files (name, owner, added_ms, body) VALUES ($1, 'producer p', 8, $2)";
    // Bodies from before there were manifests.
    let body = |name: &str| {
        format!(
            "{{\"name\":\"{name}\",\"segments\":10,\"size_bytes\":80000,\"packet_bytes\":8200}}"
        )
    };
    for name in ["/a", "/b"] {
        sqlx::query(sql).bind(name).bind(body(name)).execute(&pool).await.unwrap();
    }
    let sql = "INSERT INTO plans (number, parent, object, made_ms, body) \
               VALUES ($1, $2, $3, 9, $4)";
    for plan in [plan(3, 0, "/a"), plan(4, 0, "/b"), end(5, 4, "/b")] {
        let query =
            sqlx::query(sql).bind(saturating_i64(plan.number)).bind(saturating_i64(plan.parent));
        let query = query.bind(plan.object.to_string()).bind(json(&plan));
        query.execute(&pool).await.unwrap();
    }
    pool.close().await;
    place
}

#[tokio::test]
async fn migrates_older_databases() {
    for steps in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let place = old_database(&folder, steps).await;
        let database = Database::open(&place, None).await.unwrap();
        let tokens = database.tokens().await.unwrap().read;
        assert_eq!((tokens.len(), &tokens[0].prefixes[..]), (1, &[name("/")][..]));
        let changes = database.changes_since(None).await.unwrap();
        let files = changes.files.into_iter().map(|change| match change {
            FileChange::Added(FileRow { file, owner }) => (file, owner),
            FileChange::Withdrawn(name) | FileChange::Unreadable(name) => panic!("{name}"),
        });
        let owner = "producer p".to_owned();
        let expected = [(file("/a"), owner.clone()), (file("/b"), owner)];
        assert_eq!(files.collect::<Vec<_>>(), expected);
        assert_eq!(changes.plans, [plan(3, 0, "/a"), end(5, 4, "/b")]);
        assert_eq!(database.audit(u64::MAX, 10).await.unwrap()[0].action, "token added");
        // No controller of this version has a report of it.
        assert_eq!(database.routers().await.unwrap(), [("r".to_owned(), 7, true)]);
        // A plan may follow the newest plan, and any plan may follow an end; nothing else.
        let plans = [plan(1001, 3, "/a"), plan(2001, 0, "/b"), plan(3001, 4, "/b")].map(record);
        assert_eq!(database.write(1, &plans).await.unwrap(), [name("/b")]);
        let with_manifest = [(file("/a"), FileStatus::AddsManifest), (file("/c"), FileStatus::New)];
        database.add_files(&with_manifest, "producer p", false, 10).await.unwrap();
        assert_eq!(database.register_controller("http://one", 11).await.unwrap(), 1);
    }
}

/// SQLite rolls back by itself when it is full. The connection must not be reused: the next change
/// that was undone left a transaction open, in which all later changes were lost.
#[tokio::test]
async fn full_database_leaves_no_transaction_open() {
    let folder = tempfile::tempdir().unwrap();
    let place: DatabaseLocation = folder.path().join("controller.db").into();
    let small = Database::open(&place, Some(60 * PAGE_BYTES)).await.unwrap();
    let add = async |name: &str, status| {
        small.add_files(&[(file(name), status)], "producer p", false, 1).await
    };
    let mut count = 0;
    let error = loop {
        match add(&format!("/{count}"), FileStatus::New).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 10_000, "it is never full");
    };
    assert_eq!(error.outage_cause(), OutageCause::Full);
    // This fails because the file does not exist, not because of the disk.
    let undone = add("/none", FileStatus::AddsManifest).await;
    assert!(matches!(undone, Err(DatabaseError::Conflict)));
    small.prune(0, 0).await.unwrap();
    add("/late", FileStatus::New).await.unwrap();
    let other = Database::open(&place, None).await.unwrap();
    let changes = other.changes_since(None).await.unwrap();
    let late = name("/late");
    let is_late =
        |change: &FileChange| matches!(change, FileChange::Added(row) if row.file.name == late);
    assert!(changes.files.iter().any(is_late), "an accepted file is missing");
    other.add_files(&[(file("/other"), FileStatus::New)], "producer p", false, 1).await.unwrap();
}
