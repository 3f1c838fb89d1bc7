//! Holds a server, a standby of it and, if it may mount, a small disk until it is killed. A test checks that nothing
//! outlives the process. Prints what it holds, and then `ready`.

use testkit::postgres::{PostgresOptions, TestPostgres};
use testkit::tmpfs::SmallDisk;

fn main() -> anyhow::Result<()> {
    let disk = SmallDisk::new(1 << 20);
    let primary = TestPostgres::start(PostgresOptions::default())?;
    let standby = primary.standby()?;
    for server in [&primary, &standby] {
        println!("pid {}", server.pid().unwrap_or_default());
        println!("directory {}", server.directory().display());
    }
    if let Some(disk) = &disk {
        println!("directory {}", disk.path().display());
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
