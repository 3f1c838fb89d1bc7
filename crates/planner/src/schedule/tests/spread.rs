use std::collections::HashSet;
use std::time::Duration;

use super::super::spread::position_in;
use super::super::{offset, position_of};
use super::{member, rule, schedule};
use api::doc::SpreadBy;
use uuid::Uuid;

#[test]
fn offsets_match_the_table_of_mimo() {
    let check = |subscription: &str, group: &str, name: &str, crc: u32, offsets: [u64; 4]| {
        let id = format!(
            "/subscriptions/{subscription}/resourcegroups/{group}/providers/microsoft.redhatopenshift/openshiftclusters/{name}"
        );
        assert_eq!(position_of(&id), crc, "{id}");
        for (hours, expect) in [(0, offsets[0]), (1, offsets[1]), (24, offsets[2]), (168, offsets[3])] {
            let across = if hours == 0 { Duration::from_secs(60) } else { Duration::from_secs(hours * 3600) };
            assert_eq!(offset(crc, across).as_secs(), expect, "{id} over {across:?}");
        }
        for seconds in [0, 1] {
            assert_eq!(offset(crc, Duration::from_secs(seconds)), Duration::ZERO);
        }
    };
    let zero = "00000000-0000-0000-0000-000000000000";
    check(zero, "rg1", "cluster1", 0x2b9e_d39f, [10, 613, 14722, 103_053]);
    check(zero, "rg1", "cluster2", 0xb297_8225, [41, 2511, 60274, 421_922]);
    check(zero, "rg2", "cluster1", 0x61b0_a361, [23, 1373, 32970, 230_792]);
    check("11111111-1111-1111-1111-111111111111", "prod-eu", "payments", 0x11af_4965, [4, 249, 5969, 41780]);
    check("11111111-1111-1111-1111-111111111111", "Prod-EU", "Payments", 0x11af_4965, [4, 249, 5969, 41780]);
    check("22222222-2222-2222-2222-222222222222", "aro", "canary", 0xe49a_ae40, [53, 3214, 77153, 540_077]);
    check(
        "33333333-3333-3333-3333-333333333333",
        "team-a",
        "web-01",
        0x4d00_08a8,
        [18, 1083, 25987, 181_913],
    );
}

#[test]
fn the_last_position_is_one_second_before_the_end() {
    for seconds in [2, 60, 3600, 86_400, 604_800] {
        assert_eq!(offset(u32::MAX, Duration::from_secs(seconds)).as_secs(), seconds - 1);
        assert_eq!(offset(0, Duration::from_secs(seconds)).as_secs(), 0);
    }
}

#[test]
fn spread_by_schedule_gives_a_cluster_another_position_in_each() {
    let cluster = Uuid::from_u128(7);
    let places: HashSet<u32> =
        (0..50).map(|number| position_in(&format!("schedule-{number}"), cluster)).collect();
    assert!(places.len() > 45);
    let slot = |id: &str, spread_by| {
        let mut schedule = schedule();
        (schedule.id, schedule.spread_by, schedule.schedule_across) =
            (id.to_owned(), spread_by, "12h".to_owned());
        let rule = rule(&schedule);
        rule.desired_slots(&rule.horizon(super::at("2026-03-01T12:00:00Z")), &member("cluster1"))[0].run_after
    };
    assert_eq!(slot("a", SpreadBy::Cluster), slot("b", SpreadBy::Cluster));
    assert_ne!(slot("a", SpreadBy::Schedule), slot("b", SpreadBy::Schedule));
}
