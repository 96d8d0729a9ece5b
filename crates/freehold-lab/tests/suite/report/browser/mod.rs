//! A real browser for tests: Chromium without a window, spoken to in the DevTools protocol over two
//! pipes.
//!
//! ```text
//!  test ── stdin ──> sh ── descriptor 3 ──> chromium --remote-debugging-pipe     messages: JSON, each ended by a 0 byte
//!       <─ stdout ──     <─ descriptor 4 ──
//! ```
//!
//! Pipes need no port and no library of web sockets. The shell's only work is to give the pipes the
//! numbers that Chromium wants them under.

#![allow(dead_code, unreachable_pub)] // each test file uses its own part

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Nothing that is asked of the browser takes longer on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to start, in the order of preference; `CHROMIUM` in the environment comes first.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

pub struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    session: String,
    last_id: u64,
    /// Everything that the browser told without being asked.
    pub events: Vec<Value>,
    /// Removed with the browser.
    profile: tempfile::TempDir,
}

/// The browser there is, or `None`, said loudly.
pub fn start(test: &str) -> Option<Browser> {
    let Some(program) = find() else {
        // Not `eprintln!`, which tests that pass do not show.
        let names = NAMES.join(", ");
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: there is no Chromium here (looked for {names} and $CHROMIUM)"
        );
        return None;
    };
    Some(Browser::start(&program))
}

fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM").filter(|named| !named.is_empty()) {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES
        .iter()
        .find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
}

impl Browser {
    fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a temporary folder for the browser's profile");
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let to = child.stdin.take();
        let mut from = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            child,
            to,
            from: receiver,
            session: String::new(),
            last_id: 0,
            events: Vec::new(),
            profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let answer = browser.call("Target.attachToTarget", attached);
        answer["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks for something and waits for the answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let to = self.to.as_mut().expect("the browser is there until it is dropped");
        to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        to.flush().expect("the browser listens");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut answer = self.receive(deadline, method);
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn receive(&self, deadline: Instant, what: &str) -> Value {
        match self.from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("the browser did not answer {what}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the browser ended at {what}"),
        }
    }

    /// Opens a report from disk, with what the address says after '#', and waits until it has drawn
    /// itself.
    pub fn open(&mut self, file: &Path, place: &str) {
        // From nothing: a change after '#' alone would not load the file again.
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.events.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}#{place}", file.display())}));
        self.wait("document.documentElement?.dataset.ready === 'yes'");
        self.settle();
    }

    /// Waits until an expression of JavaScript is true.
    pub fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.eval(expression) != json!(true) {
            assert!(
                Instant::now() < deadline,
                "never came true: {expression}; {:?}",
                self.complaints()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets what waits for the next picture be drawn: two of them, as one may only ask for the
    /// other.
    pub fn settle(&mut self) {
        self.eval(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => \
                   setTimeout(() => done(true)))))",
        );
    }

    /// The value of an expression of JavaScript, waited for where it is a promise.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// The size of the window; a phone's has touch and two device pixels a pixel.
    pub fn window(&mut self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// What the system prefers.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Presses a key and lets it go.
    pub fn key(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            " " => 32,
            _ => panic!("what is the code of {key}?"),
        };
        let name = if key == " " { "Space" } else { key };
        let mut down =
            json!({"type": "rawKeyDown", "key": key, "code": name, "windowsVirtualKeyCode": code});
        if matches!(key, "Enter" | " ") {
            down["type"] = json!("keyDown");
            down["text"] = json!(if key == " " { " " } else { "\r" });
        }
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "code": name, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", up);
        self.settle();
    }

    /// What can be seen, as PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64(shot["data"].as_str().expect("a picture"))
    }

    /// What is printed, as PDF.
    pub fn pdf(&mut self) -> Vec<u8> {
        let printed = self
            .call("Page.printToPDF", json!({"printBackground": true, "preferCSSPageSize": true}));
        base64(printed["data"].as_str().expect("a file"))
    }

    /// Errors of scripts, and whatever was written to the console or its log as a warning or worse.
    pub fn complaints(&self) -> Vec<String> {
        let bad = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                matches!(event["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            "Log.entryAdded" => {
                matches!(event["params"]["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            _ => false,
        };
        self.events.iter().filter(bad).map(|event| event["params"].to_string()).collect()
    }

    /// Addresses that were fetched.
    pub fn fetched(&self) -> Vec<String> {
        let sent =
            self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closing the pipe ends it, and waiting for that lets the profile be removed.
        drop(self.to.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes what the protocol sends bytes as.
fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no base64: {c}"),
    };
    let digits: Vec<u32> = text.bytes().filter(|c| *c != b'=').map(digit).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits =
            group.iter().enumerate().fold(0u32, |bits, (i, digit)| bits | digit << (18 - 6 * i));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
