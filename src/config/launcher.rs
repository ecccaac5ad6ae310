//! What launchers of several processes say of a process: torchrun, Open MPI's mpirun, Slurm's srun.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

/// The variables of each launcher: a process's number on all machines, and how many there are.
const LAUNCHERS: [(&str, &str); 3] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// The process's number among its program's on all machines; `None` unless a launcher has set both
/// of its variables to numbers, and there are several processes. The names are common, so anything
/// else is somebody else's.
pub(super) fn rank(environment: &HashMap<OsString, OsString>) -> Option<u64> {
    let read = |name: &str| environment.get(OsStr::new(name))?.to_str()?.trim().parse::<u64>().ok();
    let of_launcher = |(rank, count): (&str, &str)| {
        let (rank, count) = (read(rank)?, read(count)?);
        (count > 1 && rank < count).then_some(rank)
    };
    LAUNCHERS.into_iter().find_map(of_launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(variables: &[(&str, &str)]) -> Option<u64> {
        rank(&variables.iter().map(|&(name, value)| (name.into(), value.into())).collect())
    }

    #[test]
    fn a_rank_is_one_of_several_processes() {
        assert_eq!(rank_of(&[]), None);
        assert_eq!(rank_of(&[("RANK", "1"), ("WORLD_SIZE", "2")]), Some(1));
        let slurm = [("SLURM_PROCID", "11"), ("SLURM_NTASKS", "16")];
        assert_eq!(rank_of(&slurm), Some(11));
        let torchrun_in_slurm = [("RANK", "3"), ("WORLD_SIZE", "32"), slurm[0], slurm[1]];
        assert_eq!(rank_of(&torchrun_in_slurm), Some(3));
        let mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(rank_of(&mpi), Some(0));
        for (rank, count) in [("1", "1"), ("2", "2"), ("captain", "2"), ("0", "many"), ("-1", "2")]
        {
            assert_eq!(rank_of(&[("RANK", rank), ("WORLD_SIZE", count)]), None, "{rank} {count}");
        }
        assert_eq!(rank_of(&[("RANK", "1")]), None);
    }
}
