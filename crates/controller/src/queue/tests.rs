use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::health::Health;

fn meter() -> Meter {
    Health::default().meter("test")
}

#[tokio::test(start_paused = true)]
async fn key_added_while_running_runs_once_more() {
    let queue = Queue::default();
    let (runs, parallel) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let shutdown = CancellationToken::new();
    queue.add("a");
    queue.add("a");
    let stop = shutdown.clone();
    let again = queue.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        again.add("a");
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
    });
    let (seen, live) = (runs.clone(), parallel.clone());
    queue
        .run(8, &shutdown, &meter(), move |_| {
            let (seen, live) = (seen.clone(), live.clone());
            async move {
                assert_eq!(live.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                tokio::time::sleep(Duration::from_millis(10)).await;
                live.fetch_sub(1, Ordering::SeqCst);
                seen.fetch_add(1, Ordering::SeqCst);
                Next::Wait
            }
        })
        .await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn failing_key_is_retried_until_it_succeeds() {
    let queue = Queue::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let shutdown = CancellationToken::new();
    queue.add(1);
    let stop = shutdown.clone();
    let seen = runs.clone();
    queue
        .run(1, &shutdown, &meter(), move |_| {
            let (seen, stop) = (seen.clone(), stop.clone());
            async move {
                if seen.fetch_add(1, Ordering::SeqCst) < 3 {
                    return Next::Retry;
                }
                stop.cancel();
                Next::Wait
            }
        })
        .await;
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn delayed_key_runs_at_its_earliest_delay() {
    let queue = Queue::default();
    let shutdown = CancellationToken::new();
    queue.add_after("a", Duration::from_mins(1));
    queue.add_after("a", Duration::from_millis(300));
    queue.add_after("a", Duration::from_secs(90));
    queue.add_after("b", Duration::from_secs(5));
    queue.add("b");
    queue.add_after("b", Duration::from_secs(5));
    let start = Instant::now();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (stop, seen) = (shutdown.clone(), ran.clone());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_mins(5)).await;
        stop.cancel();
    });
    queue
        .run(2, &shutdown, &meter(), move |key| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push((key, start.elapsed().as_millis()));
                Next::Wait
            }
        })
        .await;
    assert_eq!(*ran.lock().unwrap(), [("b", 0), ("a", 300)]);
}

/// Runs until nothing has run for a minute, and notes when each key ran.
async fn trace(queue: &Queue<&'static str>, next: impl Fn(&str, usize) -> Next) -> Vec<(&'static str, u64)> {
    let start = Instant::now();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_mins(10)).await;
        stop.cancel();
    });
    queue
        .run(1, &shutdown, &meter(), |key| {
            let mut ran = ran.lock().unwrap();
            let times = ran.iter().filter(|(known, _)| *known == key).count();
            ran.push((key, start.elapsed().as_secs()));
            let next = next(key, times);
            async move { next }
        })
        .await;
    ran.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn most_urgent_key_runs_first() {
    let queue = Queue::default();
    let at = |second| Timestamp::from_second(second).ok();
    for (key, urgency) in [("late", at(300)), ("none", None), ("soon", at(100))] {
        queue.set_urgency(&key, urgency);
        queue.add(key);
    }
    let ran = trace(&queue, |_, _| Next::Wait).await;
    let order: Vec<_> = ran.into_iter().map(|(key, _)| key).collect();
    assert_eq!(order, ["soon", "late", "none"]);
}

#[tokio::test(start_paused = true)]
async fn appointment_follows_the_clock() {
    let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
    let queue = Queue::with_clock(clock);
    queue.add("a");
    let ran = trace(&queue, |_, times| match times {
        0 => Next::At(Timestamp::from_second(300).unwrap()),
        _ => Next::Wait,
    })
    .await;
    assert_eq!(ran, [("a", 0), ("a", 300)]);
}

#[tokio::test(start_paused = true)]
async fn growing_pauses_are_reset_by_success_and_new_input_only() {
    let pauses = async |events: fn(&Queue<&'static str>)| {
        let queue = Queue::default();
        queue.add("a");
        let events_of = queue.clone();
        let ran = trace(&queue, move |_, times| {
            if times > 3 {
                events(&events_of);
            }
            Next::Retry
        })
        .await;
        ran.len()
    };
    // Ten minutes of pauses that grow to a minute.
    let growing = pauses(|_| {}).await;
    assert!(growing < 30, "{growing} runs");
    let new_input = pauses(|queue| queue.input_changed(&"a")).await;
    assert!(new_input > 1000, "{new_input} runs");
}

#[test]
fn outcome_is_held_back_once_until_its_limit() {
    let limit = Duration::from_millis(200);
    let queue = Queue::default();
    let first = queue.hold_back(&"a", limit).unwrap();
    assert!(first <= limit);
    assert!(queue.hold_back(&"a", limit).unwrap() <= first);
    queue.release(&"a");
    assert!(queue.hold_back(&"a", limit).is_some());
    let long_ago = Instant::now().checked_sub(limit).unwrap();
    queue.lock().held_back.insert("a", long_ago);
    assert_eq!(queue.hold_back(&"a", limit), None);
    assert!(queue.lock().held_back.is_empty());
}
