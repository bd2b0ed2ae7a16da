//! A fake API server for the tests of this crate: it records requests, and answers them by their first lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use kube::Config;
use kubernetes::ClusterReader;

use crate::workload::parse_workload;
use crate::workload_client::WorkloadClient;

/// Starts a server, and returns a client of a workload in the namespace `shop` with the requests that it sends: each a
/// line such as `GET /version`, a space and its body.
pub(crate) fn start(
    workload: &str,
    respond: impl Fn(&str) -> (u16, String) + Send + 'static,
) -> (WorkloadClient, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    // Ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read(&stream);
            let (status, body) = respond(&request);
            // Fails once the test has ended.
            let _ = sender.send(request);
            let length = body.len();
            let head = format!("HTTP/1.1 {status} -\r\ncontent-type: application/json\r\n");
            let end = format!("content-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = stream.write_all((head + &end).as_bytes());
        }
    });
    let config = Config::new(url.parse().unwrap());
    let reader = ClusterReader::from_config(config, |error| panic!("{error}")).unwrap();
    let client = WorkloadClient::new(reader, "shop".to_owned(), parse_workload(workload).unwrap());
    (client, requests)
}

/// The method, the target and the body of a request.
fn read(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let first = first.trim_end().trim_end_matches(" HTTP/1.1");
    format!("{first} {}", String::from_utf8(body).unwrap())
}
