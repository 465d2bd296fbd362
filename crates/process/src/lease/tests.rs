use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::*;

use super::*;

/// The delay before and whether it is lost before, and the same for the answer.
type Fault = (u64, bool, u64, bool);

/// A Lease in memory that compares and swaps, and whose requests can be slow or lost, on either way.
#[derive(Clone, Default)]
struct Table {
    lease: Arc<Mutex<Option<(u64, Record)>>>,
    /// Used one per request.
    faults: Arc<Mutex<Vec<Fault>>>,
}

impl Table {
    async fn fault<T>(&self, action: impl FnOnce() -> Result<T, Refused>) -> Result<T, Refused> {
        let (before, lost_before, after, lost_after) =
            self.faults.lock().unwrap().pop().unwrap_or((1, false, 1, false));
        tokio::time::sleep(Duration::from_millis(before)).await;
        if lost_before {
            return Err(Refused("lost on the way".into()));
        }
        let answer = action();
        tokio::time::sleep(Duration::from_millis(after)).await;
        if lost_after {
            Err(Refused("the answer was lost".into()))
        } else {
            answer
        }
    }
}

impl Store for Table {
    async fn read(&self) -> Result<Option<Record>, Refused> {
        self.fault(|| {
            Ok(self.lease.lock().unwrap().clone().map(|(version, mut record)| {
                record.lease.metadata.resource_version = Some(version.to_string());
                record
            }))
        })
        .await
    }

    async fn write(&self, mut record: Record) -> Result<Record, Refused> {
        self.fault(|| {
            let mut lease = self.lease.lock().unwrap();
            let version = lease.as_ref().map(|(version, _)| version.to_string());
            if version != record.lease.metadata.resource_version {
                return Err(Refused("conflict".into()));
            }
            let next = lease.as_ref().map_or(1, |(version, _)| version + 1);
            record.lease.metadata.resource_version = Some(next.to_string());
            *lease = Some((next, record.clone()));
            Ok(record)
        })
        .await
    }
}

fn candidate(table: &Table, name: &str) -> Candidate<Table> {
    Candidate::with_store(table.clone(), name.into(), Timing::default())
}

/// Counts who leads; more than one at a time fails the test.
#[derive(Clone, Default)]
struct Throne {
    sitting: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    terms: Arc<AtomicUsize>,
}

impl Throne {
    async fn sit(&self, lost: CancellationToken) {
        let now = self.sitting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.terms.fetch_add(1, Ordering::SeqCst);
        lost.cancelled().await;
        self.sitting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn spawn(
    table: &Table,
    name: &str,
    throne: &Throne,
    shutdown: &CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let (candidate, throne, shutdown) = (candidate(table, name), throne.clone(), shutdown.clone());
    tokio::spawn(async move {
        candidate
            .run(shutdown, move |lost| {
                let throne = throne.clone();
                async move { throne.sit(lost).await }
            })
            .await;
    })
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_at_once() {
    let (table, throne) = (Table::default(), Throne::default());
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let a = spawn(&table, "a", &throne, &stop_a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let b = spawn(&table, "b", &throne, &stop_b);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(throne.terms.load(Ordering::SeqCst), 1, "b waits while a renews");
    stop_a.cancel();
    a.await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(
        throne.terms.load(Ordering::SeqCst),
        2,
        "b leads soon after a's release"
    );
    assert_eq!(table.lease.lock().unwrap().as_ref().unwrap().1.transitions, 1);
    stop_b.cancel();
    b.await.unwrap();
    assert_eq!(throne.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn lease_of_dead_leader_is_taken_after_its_duration() {
    let (table, throne) = (Table::default(), Throne::default());
    let stop = CancellationToken::new();
    let a = spawn(&table, "a", &throne, &stop);
    tokio::time::sleep(Duration::from_secs(5)).await;
    a.abort();
    let _ = a.await;
    throne.sitting.store(0, Ordering::SeqCst);
    spawn(&table, "b", &throne, &stop);
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(throne.terms.load(Ordering::SeqCst), 1, "the lease is still valid");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(throne.terms.load(Ordering::SeqCst), 2);
    stop.cancel();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever request is slow or lost, there are never two leaders at once, and there is one in the end.
    #[test]
    fn faults_never_make_two_leaders(faults in prop::collection::vec((0_u64..12_000, any::<bool>(), 0_u64..12_000, any::<bool>()), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (table, throne) = (Table::default(), Throne::default());
            *table.faults.lock().unwrap() = faults;
            let stop = CancellationToken::new();
            let all: Vec<_> = ["a", "b", "c"].iter().map(|name| spawn(&table, name, &throne, &stop)).collect();
            tokio::time::sleep(Duration::from_mins(15)).await;
            assert_eq!(throne.sitting.load(Ordering::SeqCst), 1);
            stop.cancel();
            for one in all {
                one.await.unwrap();
            }
            assert_eq!(throne.most.load(Ordering::SeqCst), 1);
        });
    }
}
