//! The folder on disk. One thread writes; it takes everything that piled up while it was writing as its next transaction, so that
//! many writers share one flush. A request is acknowledged when its write is on disk.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use redb::{Database, ReadableTable, TableDefinition};
use tokio::sync::watch;

use super::{Change, Event, Object};

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const SECRETS: TableDefinition<&str, &[u8]> = TableDefinition::new("secrets");
const RV: &str = "resourceVersion";
/// How far resourceVersions jump when a folder is opened. Others may have seen versions that never reached the disk; no
/// version is given twice as long as fewer than these were under way.
const JUMP: u64 = 1 << 20;

/// A data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or read.
    #[error("the data folder {0} cannot be used: {1}")]
    Io(String, String),
    /// Another process uses it.
    #[error(
        "the data folder {0} is in use: another server runs on it; stop that one, or choose another folder"
    )]
    InUse(String),
    /// The database in it cannot be opened.
    #[error("the database in the data folder {0} cannot be used: {1}")]
    Database(String, String),
    /// A stored object is not JSON.
    #[error("the object {1} in the data folder {0} cannot be read: {2}")]
    Object(String, String, serde_json::Error),
}

/// What is wrong with the folder.
fn bad(folder: &Path, error: impl Into<redb::Error>) -> OpenError {
    let folder = folder.display().to_string();
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse(folder),
        error => OpenError::Database(folder, error.to_string()),
    }
}

/// Does something with the database, which panics on some files that are damaged.
fn guarded<T, E: From<redb::Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(redb::Error::Corrupted("it is damaged".to_owned()).into()))
}

struct Shared {
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Default)]
struct Pending {
    events: Vec<Arc<Event>>,
    closed: bool,
}

pub(super) struct Disk {
    folder: PathBuf,
    /// Gone once closed, so that another server may open the folder.
    database: Mutex<Option<Arc<Database>>>,
    /// Read when the folder is opened: a key that cannot be read must not be taken for one that is not there, and made anew.
    secrets: Mutex<HashMap<String, Vec<u8>>>,
    shared: Arc<Shared>,
    durable: watch::Receiver<Result<u64, String>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Disk {
    /// Opens the folder and reads everything in it, with the resourceVersion to go on from.
    pub fn open(folder: &Path) -> Result<(Self, u64, Vec<Object>), OpenError> {
        let io = |error: std::io::Error| OpenError::Io(folder.display().to_string(), error.to_string());
        std::fs::create_dir_all(folder).map_err(io)?;
        let path = folder.join("cluster.redb");
        private(&path).map_err(io)?;
        let Content {
            database,
            rv,
            objects,
            secrets,
        } = guarded(|| read_all(&path)).map_err(|unusable| match unusable {
            Unusable::Database(error) => bad(folder, error),
            Unusable::Object(key, error) => OpenError::Object(folder.display().to_string(), key, error),
        })?;
        let database = Arc::new(database);
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            wake: Condvar::new(),
        });
        let (sender, durable) = watch::channel(Ok(rv));
        let writer = std::thread::Builder::new().name("apiserver-disk".into()).spawn({
            let (database, shared) = (database.clone(), shared.clone());
            let folder = folder.display().to_string();
            move || write_all(&database, &shared, &sender, &folder)
        });
        let writer = writer.map_err(io)?;
        Ok((
            Self {
                folder: folder.to_owned(),
                database: Mutex::new(Some(database)),
                secrets: Mutex::new(secrets),
                shared,
                durable,
                writer: Mutex::new(Some(writer)),
            },
            rv,
            objects,
        ))
    }

    /// An error if nothing is written any more.
    pub fn writable(&self) -> Result<(), String> {
        self.durable.borrow().as_ref().map(drop).map_err(Clone::clone)
    }

    /// Queues a change. The queue is as long as there are requests waiting for [`Disk::durable`].
    pub fn write(&self, event: &Arc<Event>) {
        if self.writable().is_err() {
            return;
        }
        let mut pending = self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.events.push(event.clone());
        self.shared.wake.notify_one();
    }

    pub async fn durable(&self, rv: u64) -> Result<(), String> {
        let mut durable = self.durable.clone();
        match durable
            .wait_for(|at| at.as_ref().map_or(true, |at| *at >= rv))
            .await
        {
            Ok(at) => at.as_ref().map(|_| ()).map_err(Clone::clone),
            Err(_) => Err("the data folder is closed".into()),
        }
    }

    fn database(&self) -> Option<Arc<Database>> {
        self.database
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn secret(&self, name: &str) -> Option<Vec<u8>> {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.get(name).cloned()
    }

    pub fn keep_secret(&self, name: &str, value: &[u8]) -> Result<(), OpenError> {
        let Some(open) = self.database() else {
            return Ok(());
        };
        guarded(|| {
            let write = open.begin_write()?;
            write.open_table(SECRETS)?.insert(name, value)?;
            Ok(write.commit()?)
        })
        .map_err(|error: redb::Error| bad(&self.folder, error))?;
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    pub fn close(&self) {
        self.shared
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(writer.join());
        }
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.close();
    }
}

/// What a database holds.
struct Content {
    database: Database,
    rv: u64,
    objects: Vec<Object>,
    secrets: HashMap<String, Vec<u8>>,
}

/// Why that cannot be told.
enum Unusable {
    Database(redb::Error),
    /// The name of the object.
    Object(String, serde_json::Error),
}

impl<E: Into<redb::Error>> From<E> for Unusable {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// Opens a database, reads all of it, and marks that it was opened.
fn read_all(path: &Path) -> Result<Content, Unusable> {
    let mut database = Database::create(path)?;
    // A page that changed on the disk must be told before it is read: what it says could be anything, and look right.
    if !database.check_integrity()? {
        tracing::warn!(
            "the database {} was damaged, and is as it was one write ago",
            path.display()
        );
    }
    let mut rv = 0;
    let mut objects = Vec::new();
    let mut secrets = HashMap::new();
    let write = database.begin_write()?;
    {
        for entry in write.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            let Some((table, name)) = key.value().split_once('\n') else {
                continue;
            };
            let object = Object::from_disk(table.into(), name.into(), value.value())
                .map_err(|error| Unusable::Object(key.value().replace('\n', " "), error))?;
            objects.push(object);
        }
        let mut numbers = write.open_table(NUMBERS)?;
        if let Some(number) = numbers.get(RV)? {
            rv = number.value().saturating_add(JUMP);
        }
        rv = rv.max(1);
        numbers.insert(RV, rv)?;
        for entry in write.open_table(SECRETS)?.iter()? {
            let (name, value) = entry?;
            secrets.insert(name.value().to_owned(), value.value().to_vec());
        }
    }
    write.commit()?;
    Ok(Content {
        database,
        rv,
        objects,
        secrets,
    })
}

/// Makes the file, if there is none. Keys of the cluster are inside: nobody but the owner may ever open it.
fn private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let file = options.mode(0o600).open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
    }
    #[cfg(not(unix))]
    options.open(path).map(drop)
}

fn write_all(
    database: &Database,
    shared: &Shared,
    durable: &watch::Sender<Result<u64, String>>,
    folder: &str,
) {
    loop {
        let (events, closed) = {
            let mut pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
            while pending.events.is_empty() && !pending.closed {
                pending = shared.wake.wait(pending).unwrap_or_else(PoisonError::into_inner);
            }
            (std::mem::take(&mut pending.events), pending.closed)
        };
        if let Some(last) = events.last() {
            match guarded(|| write_batch(database, &events)) {
                Ok(()) => drop(durable.send_replace(Ok(last.rv))),
                Err(error) => {
                    // Nothing after this may be acknowledged: what follows could depend on what was lost.
                    let why = format!(
                        "the data folder {folder} cannot be written: {error}; nothing can be changed until it can, and the \
                         server is started again"
                    );
                    tracing::error!("{why}");
                    drop(durable.send_replace(Err(why)));
                    shared
                        .pending
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .events = Vec::new();
                    return;
                }
            }
        }
        if closed && events.is_empty() {
            return;
        }
    }
}

fn write_batch(database: &Database, events: &[Arc<Event>]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        let mut numbers = write.open_table(NUMBERS)?;
        for event in events {
            let key = format!("{}\n{}", event.object.table, event.object.key);
            if event.change == Change::Deleted {
                objects.remove(key.as_str())?;
            } else {
                objects.insert(key.as_str(), &*event.object.json())?;
            }
            numbers.insert(RV, event.rv)?;
        }
    }
    write.commit()?;
    Ok(())
}
