//! Lists in pages.

use serde_json::Value;

use super::{NEW, SUBSCRIPTION, at, body};
use crate::fixture::on_both;

fn path(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    format!("/{}", rest.split_once('/').unwrap().1)
}

#[tokio::test]
async fn a_list_continues_until_its_end() {
    on_both(|server| async move {
        server.register().await;
        for at_ in 0..12 {
            let name = format!("c{at_:02}");
            server.put(&at(&name, NEW), &body(&name)).await.expect(201);
        }
        let elsewhere = at("far", NEW).replace("MyGroup", "MyGroupToo");
        server.put(&elsewhere, &body("far")).await.expect(201);
        let of = |group: &str| {
            format!("/subscriptions/{SUBSCRIPTION}{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters?api-version={NEW}&x=a%26b")
        };
        let walk = async |first: String| {
            let (mut names, mut next, mut pages) = (Vec::new(), Some(first), 0);
            while let Some(page) = next.take() {
                let referer = format!("https://management.example/arm{page}");
                let reply = server.send(http::Method::GET, &page, &[("referer", &referer)], None).await.expect(200);
                assert!(!reply.text.contains("hunter2"));
                let form = reply.json();
                names.extend(form["value"].as_array().unwrap().iter().map(|it| it["name"].clone()));
                pages += 1;
                next = form.get("nextLink").and_then(Value::as_str).map(|link| {
                    assert!(link.starts_with("https://management.example/arm/subscriptions/"), "{link}");
                    assert!(link.contains("api-version=2025-07-25") && link.contains("x=a%26b"), "{link}");
                    let token = link.split("skipToken=").nth(1).unwrap();
                    assert!(!token.contains("L3N1YnNjcmlwdGlvb") && token.len() > 60, "the token is sealed: {link}");
                    path(link).strip_prefix("/arm").unwrap().to_owned()
                });
            }
            (names.len(), pages)
        };
        assert_eq!(walk(of("")).await, (13, 2));
        assert_eq!(walk(of("/resourceGroups/myGROUP")).await, (12, 2));
        assert_eq!(walk(of("/resourceGroups/MyGroupToo")).await, (1, 1));
        assert_eq!(walk(of("/resourceGroups/%4Dy%47roup")).await, (12, 2), "letters are letters under their escapes");
        assert_eq!(walk(of("").replace("aaaa/", "aaa%41/")).await, (13, 2));
        let none = server.get(&of("/resourceGroups/none")).await.expect(200).json();
        assert_eq!(none, serde_json::json!({"value": []}));
        for token in ["x", "AAAA", "%00"] {
            let reply = server.get(&format!("{}&$skipToken={token}", of(""))).await;
            assert_eq!(reply.error(), (400, "InvalidParameter".to_owned(), "$skipToken".to_owned()), "{token}");
        }
        server.close().await;
    })
    .await;
}
