//! What a PostgreSQL of long ago says of itself: enough of the protocol to be greeted and to tell its version. No
//! package brings so old a server, and only its rejection is of interest.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A listener that answers as a server of that version would.
pub(crate) struct OldPostgres {
    address: SocketAddr,
}

impl OldPostgres {
    pub(crate) fn start(version: &'static str) -> OldPostgres {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client that leaves in the middle is its own business.
                let _ = serve(client, version);
            }
        });
        OldPostgres { address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn serve(mut client: TcpStream, version: &str) -> std::io::Result<()> {
    const PLAINTEXT_ONLY: &[u8] = b"N";
    const SSL_REQUEST: u32 = 80_877_103;
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut rest)?;
        if rest[..4] != SSL_REQUEST.to_be_bytes() {
            break;
        }
        client.write_all(PLAINTEXT_ONLY)?;
    }
    message(&mut client, b'R', &0u32.to_be_bytes())?;
    message(&mut client, b'S', format!("server_version\0{version}\0").as_bytes())?;
    message(&mut client, b'Z', b"I")?;
    loop {
        let mut head = [0; 5];
        client.read_exact(&mut head)?;
        let mut rest = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        client.read_exact(&mut rest)?;
        if head[0] != b'Q' {
            return Ok(());
        }
        let major: u32 = version.split('.').next().unwrap().parse().unwrap();
        let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        let number = (major * 10_000 + minor).to_string();
        row(&mut client, &[&number, version])?;
        message(&mut client, b'C', b"SELECT 1\0")?;
        message(&mut client, b'Z', b"I")?;
    }
}

/// One row of texts, described and sent.
fn row(client: &mut TcpStream, texts: &[&str]) -> std::io::Result<()> {
    let count = u16::try_from(texts.len()).unwrap().to_be_bytes();
    let (mut description, mut data) = (count.to_vec(), count.to_vec());
    for (number, text) in texts.iter().enumerate() {
        description.extend_from_slice(format!("column{number}\0").as_bytes());
        description.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0]);
        data.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
        data.extend_from_slice(text.as_bytes());
    }
    message(client, b'T', &description)?;
    message(client, b'D', &data)
}

fn message(client: &mut TcpStream, kind: u8, body: &[u8]) -> std::io::Result<()> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend_from_slice(body);
    client.write_all(&bytes)
}
