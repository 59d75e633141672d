//! How a browser comes in: what opens it, which of its cookies counts, and where the page may stand.

use crate::harness::{PID, Server};
use crate::page_story::{Browser, signed_in};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

#[tokio::test]
async fn a_cookie_of_the_same_name_in_front_of_the_good_one_is_passed_over() {
    let server = Server::start();
    server.identity("Texi").await;
    let mut browser = signed_in(&server).await;
    let good = browser.cookie.clone().unwrap();
    let (name, _) = good.split_once('=').unwrap();
    for (cookies, counts) in [
        (format!("{name}=of-another; {good}"), true),
        (format!("{good}; {name}=of-another"), true),
        (format!("{name}=; theme=dark; {name}=x; {good}"), true),
        (format!("{name}x=1; x{good}"), false),
        (format!("{name}=of-another; {name}=x"), false),
    ] {
        browser.cookie = Some(cookies.clone());
        let (status, said) = browser.call(PID, "now", json!({})).await;
        assert_eq!(status, if counts { 200 } else { 401 }, "{cookies}: {said}");
        let page = browser.get("/").await.status();
        assert_eq!(page, if counts { 200 } else { 401 }, "{cookies}");
    }
}

/// Runs `prism dashboard` where only what this script does can open a browser.
fn dashboard(server: &Server, opener: Option<&str>) -> (Output, PathBuf) {
    let programs = server.folder().join("programs");
    drop(std::fs::remove_dir_all(&programs));
    std::fs::create_dir(&programs).unwrap();
    let opened = server.folder().join("opened");
    drop(std::fs::remove_file(&opened));
    if let Some(script) = opener {
        let name = if cfg!(target_os = "macos") {
            "open"
        } else {
            "xdg-open"
        };
        let file = programs.join(name);
        let script = script.replace("OPENED", opened.to_str().unwrap());
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = server.command(None);
    command.env("PATH", &programs).arg("dashboard");
    (command.stdin(Stdio::null()).output().unwrap(), opened)
}

#[tokio::test]
async fn the_browser_is_opened_with_a_link_that_signs_it_in_and_where_there_is_none_it_is_printed()
{
    let server = Server::start();
    let (output, opened) = dashboard(&server, Some("echo \"$@\" > OPENED"));
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        said.trim(),
        "opened in the browser",
        "the link is nobody else's to read"
    );
    let link = std::fs::read_to_string(opened).unwrap();
    let mut browser = Browser::of(&server);
    assert_eq!(browser.open(link.trim()).await.status(), 303, "{link}");
    assert_eq!(browser.get("/").await.status(), 200);

    for opener in [None, Some("exit 3")] {
        let (output, _) = dashboard(&server, opener);
        assert!(output.status.success(), "{output:?}");
        let noted = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(noted.contains("30 seconds"), "{noted}");
        let link = String::from_utf8(output.stdout).unwrap();
        let mut browser = Browser::of(&server);
        let answer = browser.open(link.trim()).await;
        assert_eq!(answer.status(), 303, "{opener:?}: {link}");
    }
    // Who asks for it printed opens nothing.
    let (output, opened) = dashboard(&server, Some("echo \"$@\" > OPENED"));
    assert!(output.status.success() && opened.exists());
    std::fs::remove_file(&opened).unwrap();
    let mut command = server.command(None);
    command.env("PATH", server.folder().join("programs"));
    let output = command.args(["dashboard", "--print"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("http"),
        "{output:?}"
    );
    assert!(!opened.exists());
}

#[test]
fn an_address_that_no_browser_can_reach_is_refused() {
    let server = Server::none();
    for address in [
        "https://prism.example:99999",
        "https://prism.example:",
        "prism.example",
    ] {
        let mut serve = server.command(None);
        serve.args(["serve", "--port", "0", "--public-url", address]);
        let refused = serve.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{address}");
        assert!(
            said.contains("public_url") && said.contains("https://host"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn the_port_that_a_scheme_means_anyway_is_no_other_origin() {
    let mut server = Server::start();
    server.kill();
    let mut serve = server.command(None);
    let public = "https://prism.example:443/p";
    serve.args(["serve", "--port", "0", "--public-url", public]);
    server.resume_as(serve);
    let link = crate::page_story::link(&server);
    let token = link
        .strip_prefix("https://prism.example/p/sign-in/")
        .expect(&link);
    let mut browser = Browser::of(&server);
    browser.open(&format!("/p/sign-in/{token}")).await;
    let asked = browser
        .http
        .post(format!("{}/p/api/v1/*/now", browser.url))
        .json(&json!({}));
    let asked = asked.header("cookie", browser.cookie.as_deref().unwrap());
    let answer = asked
        .header("origin", "https://prism.example")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}
