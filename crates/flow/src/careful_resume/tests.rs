use super::*;

const RTT: Nanos = Nanos(100_000_000);
const MS: u64 = 1_000_000;

fn saved() -> CarefulResume {
    CarefulResume::new(gbit(10), RTT, true).unwrap()
}

fn gbit(rate: u64) -> BitsPerSec {
    BitsPerSec::new(rate * 1_000_000_000).unwrap()
}

fn sample(at_ms: u64, delivered: u64, queue_ms: u64) -> Sample {
    Sample { at: Nanos(at_ms * MS), delivered, rtt: Nanos(RTT.0 + queue_ms * MS), least_rtt: RTT }
}

fn met(lost: bool, can: bool) -> Met {
    Met { lost, can, is_idle: false }
}

/// After the jump, at 200 ms.
fn jumped() -> CarefulResume {
    let mut resume = saved();
    assert_eq!(resume.on_sample(sample(200, 90_000, 0), met(false, true)), Some(Step::Jump(gbit(5))));
    resume
}

#[test]
fn a_path_as_it_was_is_jumped_to_half_its_rate_and_confirmed_after_a_round_trip() {
    let mut resume = saved();
    assert_eq!(resume.on_sample(sample(100, 0, 0), met(false, true)), None, "nothing has arrived");
    assert_eq!(resume.on_sample(sample(200, 90_000, 0), met(false, true)), Some(Step::Jump(gbit(5))));
    for at in [201, 299, 301, 313] {
        assert_eq!(resume.on_sample(sample(at, 1 << 20, 0), met(false, true)), None, "{at}");
        assert!(resume.is_open());
    }
    assert_eq!(
        resume.on_sample(sample(314, 9 << 20, 0), met(false, true)),
        Some(Step::Confirm(Some(gbit(10))))
    );
    assert!(!resume.is_open());
    assert_eq!(resume.on_sample(sample(900, 1 << 30, 0), met(true, true)), None, "it is over");
}

#[test]
fn what_is_lost_at_first_or_comes_another_way_is_not_jumped() {
    assert_eq!(saved().on_sample(sample(200, 90_000, 0), met(true, true)), Some(Step::Decline));
    for (rtt, is_like) in [(74, false), (76, true), (124, true), (126, false)] {
        let rtt = Nanos(rtt * MS);
        let step =
            saved().on_sample(Sample { rtt, least_rtt: rtt, ..sample(200, 90_000, 0) }, met(false, true));
        assert_eq!(step == Some(Step::Decline), !is_like, "{rtt}: {step:?}");
    }
}

#[test]
fn a_jump_waits_for_a_queue_to_drain_and_until_it_can_be_made_but_not_for_ever() {
    for (queue_ms, can) in [(20, true), (0, false)] {
        let mut resume = saved();
        assert_eq!(resume.on_sample(sample(200, 90_000, queue_ms), met(false, can)), None);
        let mut late = resume.clone();
        assert_eq!(resume.on_sample(sample(230, 90_000, 0), met(false, true)), Some(Step::Jump(gbit(5))));
        assert_eq!(late.on_sample(sample(301, 90_000, queue_ms), met(false, can)), Some(Step::Decline));
    }
}

#[test]
fn a_loss_ends_the_jump_at_what_arrives() {
    let mut resume = jumped();
    assert_eq!(resume.on_sample(sample(300, 1_000_000, 0), met(false, true)), None);
    // 2 Gb/s for 8 ms.
    let step = resume.on_sample(sample(308, 3_000_000, 0), met(true, true));
    assert_eq!(step, Some(Step::Retreat(gbit(2))));
    assert!(!resume.is_open());
    assert_eq!(resume.on_sample(sample(507, 60_000_000, 0), met(true, true)), None);
    assert_eq!(resume.on_sample(sample(508, 60_000_000, 0), met(true, true)), Some(Step::Release));
}

#[test]
fn a_retreat_leaves_a_quarter_of_the_jump_and_no_more_than_the_jump() {
    let quarter = Step::Retreat(BitsPerSec::new(1_250_000_000).unwrap());
    assert_eq!(jumped().on_sample(sample(250, 100_000, 0), met(true, true)), Some(quarter));
    let mut resume = jumped();
    assert_eq!(resume.on_sample(sample(300, 1_000_000, 0), met(false, true)), None);
    assert_eq!(resume.on_sample(sample(301, 9_000_000, 0), met(true, true)), Some(Step::Retreat(gbit(5))));
}

#[test]
fn a_queue_when_the_answers_have_come_ends_it_too() {
    let mut resume = jumped();
    assert_eq!(resume.on_sample(sample(305, 1_000_000, 8), met(false, true)), None, "it may be the host's");
    let step = resume.on_sample(sample(318, 2_000_000, 20), met(false, true));
    assert!(matches!(step, Some(Step::Retreat(_))), "{step:?}");
}

#[test]
fn it_is_nothing_for_a_short_path_or_a_slow_one() {
    assert!(CarefulResume::new(gbit(10), Nanos(10 * MS), true).is_none());
    assert!(CarefulResume::new(gbit(1), Nanos(30 * MS), true).is_none());
    assert!(CarefulResume::new(gbit(1), RTT, true).is_some());
}

#[test]
fn who_knows_better_ends_it() {
    let mut resume = jumped();
    resume.give_up();
    assert_eq!(resume.on_sample(sample(400, 1 << 30, 0), met(false, true)), None);
}

#[test]
fn a_path_that_was_not_full_may_carry_more_than_is_known() {
    let mut resume = CarefulResume::new(gbit(10), RTT, false).unwrap();
    assert_eq!(resume.on_sample(sample(200, 90_000, 0), met(false, true)), Some(Step::Jump(gbit(5))));
    assert_eq!(resume.on_sample(sample(301, 1 << 20, 0), met(false, true)), None);
    assert_eq!(resume.on_sample(sample(314, 9 << 20, 0), met(false, true)), Some(Step::Confirm(None)));
}

#[test]
fn what_comes_slowly_is_waited_for_and_not_for_long() {
    let mut resume = jumped();
    assert_eq!(resume.on_sample(sample(301, 1_000_000, 0), met(false, true)), None);
    // 1 Gb/s of 5.
    for at in [313, 320, 349] {
        let came = 1_000_000 + (at - 301) * 125_000;
        assert_eq!(resume.on_sample(sample(at, came, 0), met(false, true)), None, "{at}");
    }
    let (mut late, mut idle) = (resume.clone(), resume.clone());
    assert_eq!(
        late.on_sample(sample(349, 20_000_000, 0), met(false, true)),
        Some(Step::Confirm(Some(gbit(10))))
    );
    let quarter = Step::Retreat(BitsPerSec::new(1_250_000_000).unwrap());
    assert_eq!(resume.on_sample(sample(351, 7_000_000, 0), met(false, true)), Some(quarter));
    // What was not there to be sent says nothing of the path.
    let met = Met { is_idle: true, ..met(false, true) };
    assert_eq!(idle.on_sample(sample(351, 7_000_000, 0), met), Some(Step::Release));
    assert!(!idle.is_open());
}

#[test]
fn who_looks_late_has_as_long_to_see_what_comes() {
    let mut resume = jumped();
    assert_eq!(resume.on_sample(sample(390, 50_000_000, 0), met(false, true)), None);
    assert_eq!(resume.on_sample(sample(400, 56_000_000, 0), met(false, true)), None);
    let step = resume.on_sample(sample(403, 58_000_000, 0), met(false, true));
    assert_eq!(step, Some(Step::Confirm(Some(gbit(10)))));
}
