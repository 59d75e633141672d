//! A cable between a server and what it stands on, which a test can cut and mend.

use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Cable {
    /// Where the near end is.
    pub address: SocketAddr,
    whole: watch::Sender<bool>,
    far: watch::Sender<String>,
    _runtime: tokio::runtime::Runtime,
}

impl Cable {
    /// Leads to `host:port`, as a URL names it behind its scheme.
    pub fn to(url: &str) -> Self {
        let far = watch::Sender::new(end_of(url));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let whole = watch::Sender::new(true);
        let cable = Self {
            address: listener.local_addr().unwrap(),
            whole: whole.clone(),
            far: far.clone(),
            _runtime: runtime,
        };
        cable._runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let whole = whole.subscribe();
                if *whole.borrow() {
                    tokio::spawn(carry(near, far.borrow().clone(), whole));
                }
            }
        });
        cable
    }

    /// Whatever is connected is cut off, and nobody gets through any more.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Whoever connects from now on comes to another place; whoever is connected stays.
    pub fn lead_to(&self, url: &str) {
        self.far.send_replace(end_of(url));
    }

    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

fn end_of(url: &str) -> String {
    url.rsplit('/').next().unwrap().to_owned()
}

async fn carry(mut near: TcpStream, far: String, mut whole: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(far).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        // However short the cut is.
        _ = whole.changed() => {}
    }
}
