//! How long is waited for what others do: the cloud, the installer, the spreading of rights.

use std::time::Duration;

use steps::engine::Retry;

/// How long is waited for what others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tempo {
    /// Between two looks at something that takes minutes.
    pub look: Duration,
    /// The pause before a failed step is tried again within its attempt; it doubles.
    pub pause: Duration,
    /// So often a step is tried within its attempt.
    pub tries: u32,
    /// So long it may take until rights that were just given have spread.
    pub rights: Duration,
    /// Between two looks at rights.
    pub rights_look: Duration,
    /// So long an installation may take, from its order on, whoever watches it.
    pub installation: Duration,
    /// Between two looks at the clusters of a subscription that is removed.
    pub removal_look: Duration,
}

impl Default for Tempo {
    fn default() -> Tempo {
        Tempo {
            look: Duration::from_secs(10),
            pause: Duration::from_secs(5),
            tries: 5,
            rights: Duration::from_secs(6 * 60),
            rights_look: Duration::from_secs(30),
            installation: Duration::from_secs(60 * 60),
            removal_look: Duration::from_secs(15),
        }
    }
}

impl Tempo {
    /// For clouds that are simulated: nothing there takes long.
    pub fn quick() -> Tempo {
        Tempo {
            look: Duration::from_millis(50),
            pause: Duration::from_millis(50),
            tries: 5,
            rights: Duration::from_secs(3),
            rights_look: Duration::from_millis(100),
            installation: Duration::from_secs(120),
            removal_look: Duration::from_millis(200),
        }
    }

    /// For a simulated cloud that people work with: what is waited for is looked at often, and waited for as long as in a real
    /// one, because the cloud may be told to take as long, or to let rights spread late.
    pub fn simulated(look: Duration) -> Tempo {
        let Tempo { rights, installation, .. } = Tempo::default();
        Tempo { look, rights, installation, ..Tempo::quick() }
    }

    /// How often a step is tried within its attempt.
    pub fn retry(&self) -> Retry {
        Retry { attempts: self.tries, backoff: self.pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_cloud_is_given_the_time_of_a_real_one_and_looked_at_more_often() {
        let (simulated, real) = (Tempo::simulated(Duration::from_millis(250)), Tempo::default());
        assert_eq!((simulated.rights, simulated.installation), (real.rights, real.installation));
        assert!(simulated.rights_look < Duration::from_secs(1) && simulated.look < real.look);
    }
}
