//! A load balancer of TCP connections, as a Service is: it hands connections to its backends in turn.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// The address of a balancer that runs until the process ends.
pub(super) fn start(backends: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (connection, backend) in listener.incoming().zip(backends.iter().cycle()) {
            let (Ok(client), Ok(server)) = (connection, TcpStream::connect(backend)) else { continue };
            let (from_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || forward(from_client, server));
            thread::spawn(move || forward(from_server, client));
        }
    });
    address
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
