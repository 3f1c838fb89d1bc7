//! Azure by its settings: the same client, pointed at the emulator of `up` by configuration alone.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::executable::Home;
use super::maintenance::{done, json};

/// Settings of Azure for the endpoints that `shipshape cloud endpoints -o json` prints.
fn settings(home: &Home, endpoints: &Value, changes: &[(&str, &str)]) -> PathBuf {
    let text = |member: &str| endpoints[member].as_str().unwrap().to_owned();
    let mut azure = vec![
        ("authority", text("authority")),
        ("resource_manager", text("resourceManager")),
        ("tenant_id", text("tenantId")),
        ("client_id", text("clientId")),
        ("client_secret_file", text("clientSecretFile")),
        ("vault", endpoints["vaults"]["shipshape"].as_str().unwrap().to_owned()),
        ("registry", text("registry")),
        ("blob", text("blob")),
        ("identity_service", text("identityService")),
        ("issuer_account", text("issuerAccount")),
        ("issuer_url", text("issuerUrl")),
        ("ca_file", text("caFile")),
    ];
    for (member, value) in changes {
        azure.retain(|(it, _)| it != member);
        azure.push((member, (*value).to_owned()));
    }
    let azure: String = azure.iter().map(|(member, value)| format!("{member} = {value:?}\n")).collect();
    let subscription = text("subscriptionId");
    let content = format!(
        "[cloud]\nprovider = \"azure\"\nsubscription = {subscription:?}\n\n[cloud.azure]\nverify_vault_address = false\n{azure}\n\
         [clusters]\nlocations = [\"westeurope\"]\n"
    );
    let file = home.directory.path().join("azure.toml");
    std::fs::write(&file, content).unwrap();
    file
}

fn config(file: &Path) -> String {
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_endpoints_of_the_emulator_are_settings_of_azure() {
    let home = Home::new();
    let _up = home.up(&["--set", "cloud.pace=0"]);
    let endpoints = json(&home, &["cloud", "endpoints"]);
    for member in [
        "authority",
        "tenantId",
        "resourceManager",
        "vaults",
        "registry",
        "blob",
        "subscriptionId",
        "clientId",
        "clientSecretFile",
        "caFile",
    ] {
        assert!(!endpoints[member].is_null(), "{member} is missing: {endpoints:#}");
    }
    let file = config(&settings(&home, &endpoints, &[]));

    // The service's zone does not exist yet; everything else does.
    let checked = home.run(&["--config", &file, "config", "check", "--cloud"]);
    let lines: Vec<&str> =
        checked.stdout.lines().filter(|it| it.starts_with("ok") || it.starts_with("MISSING")).collect();
    for subject in [
        "credentials",
        "rights",
        "resource group",
        "providers",
        "quotas",
        "secrets",
        "certificates",
        "registry",
        "token issuers",
    ] {
        assert!(
            lines.iter().any(|it| it.starts_with(&format!("ok      {subject}"))),
            "{subject}: {checked:?}"
        );
    }
    let missing: Vec<&&str> = lines.iter().filter(|it| it.starts_with("MISSING")).collect();
    assert!(missing.iter().all(|it| it.contains("zone")), "{checked:?}");

    // A principal without roles: every subject that needs one is named, not only the first.
    let weak = json(&home, &["cloud", "principal", "create", "weak", "--rights", "by-roles"]);
    let weak = [("client_id", "clientId"), ("client_secret_file", "clientSecretFile")]
        .map(|(setting, member)| (setting, weak[member].as_str().unwrap()));
    let of_weak = config(&settings(&home, &endpoints, &weak));
    let checked = home.run(&["--config", &of_weak, "config", "check", "--cloud"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for subject in [
        "rights",
        "resource group",
        "providers",
        "quotas",
        "secrets",
        "certificates",
        "registry",
        "token issuers",
    ] {
        let is_missing = |it: &str| it.starts_with(&format!("MISSING {subject}"));
        assert!(checked.stdout.lines().any(is_missing), "{subject}: {checked:?}");
    }
    let file = config(&settings(&home, &endpoints, &[]));

    // The network of a cluster is prepared for a principal that exists.
    let principal = json(&home, &["cloud", "principal", "create", "customer"]);
    let client_id = principal["clientId"].as_str().unwrap();
    let secret = home.directory.path().join("secret");
    std::fs::copy(principal["clientSecretFile"].as_str().unwrap(), &secret).unwrap();
    let secret = config(&secret);
    let prepare = [
        "--config",
        &file,
        "cloud",
        "prepare",
        "quay",
        "--azure",
        "--location",
        "westeurope",
        "--client-id",
        client_id,
        "--client-secret-file",
        &secret,
        "-o",
        "json",
    ];
    let prepared: Value = serde_json::from_str(&done(&home, &prepare)).unwrap();
    assert!(prepared["network"].as_str().unwrap().ends_with("/virtualNetworks/quay-vnet"), "{prepared:#}");
    assert_eq!(serde_json::from_str::<Value>(&done(&home, &prepare)).unwrap(), prepared, "once more");
    let listed = done(&home, &["cloud", "subnet", "list"]);
    assert!(listed.contains("master") && listed.contains("worker"), "{listed}");
}

#[test]
fn a_wrong_setting_of_azure_is_named_in_one_sentence() {
    let home = Home::new();
    let _up = home.up(&["--set", "cloud.pace=0"]);
    let endpoints = json(&home, &["cloud", "endpoints"]);
    let wrong = home.directory.path().join("wrong");
    std::fs::write(&wrong, "hunter2hunter2").unwrap();
    let wrong = config(&wrong);
    for (change, named) in [
        (("client_secret_file", wrong.as_str()), "7000215"),
        (("tenant_id", "99999999-9999-9999-9999-999999999999"), "90002"),
        (("client_id", "99999999-9999-9999-9999-999999999999"), "700016"),
        (("authority", "https://127.0.0.1:9"), "https://127.0.0.1:9"),
    ] {
        let file = config(&settings(&home, &endpoints, &[change]));
        let checked = home.run(&["--config", &file, "config", "check", "--cloud"]);
        assert_eq!(checked.code, Some(1), "{change:?}: {checked:?}");
        let line = checked.stdout.lines().find(|it| it.starts_with("MISSING")).unwrap_or_default();
        assert!(line.contains(named), "{change:?}: {checked:?}");
        assert!(!format!("{checked:?}").contains("hunter2"), "{checked:?}");
    }
    // Settings that cannot be right are reported at once, also without a look at the cloud.
    let wrong_settings = [
        ("authority", "login"),
        ("scope", "arm"),
        ("blob_suffix", "https://blob"),
        ("ca_file", wrong.as_str()),
    ];
    let file = config(&settings(&home, &endpoints, &wrong_settings));
    for flags in [&["config", "check"][..], &["config", "check", "--cloud"]] {
        let checked = home.run(&[&["--config", file.as_str()], flags].concat());
        assert_eq!(checked.code, Some(2), "{checked:?}");
        for (setting, _) in wrong_settings {
            let named = format!("error: cloud.azure.{setting}: ");
            assert!(checked.stderr.lines().any(|it| it.starts_with(&named)), "{setting}: {checked:?}");
        }
    }
    let refused = home.run(&[
        "cloud",
        "prepare",
        "quay",
        "--azure",
        "--client-id",
        "a",
        "--client-secret-file",
        &wrong,
    ]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("cloud.provider is simulated"), "{refused:?}");
}
