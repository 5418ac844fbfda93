//! What starts the ranks, and how it is told what to give them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::arguments::{options, programs, variables};
use super::environment::Mpi;
use super::program::find;

/// A program that starts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    family: Mpi,
    /// Whether it is the MPI's own, whose arguments are known.
    own: bool,
}

impl Launcher {
    /// What `program` is, where it is there: an MPI's own launcher, or another for programs of the MPI that was `said`.
    pub(crate) fn of(program: &OsStr, said: Option<Mpi>) -> anyhow::Result<Self> {
        let own = is_own(program);
        match said {
            Some(said) => {
                let path = find(program)?;
                // One that says nothing of itself is what its user says, and so is a script, which might begin its work.
                match Some(path).filter(|path| own && !is_script(path)).and_then(|_| family(program).ok()) {
                    Some(found) if found != said => bail!(
                        "{program:?} is {found}'s, and its ranks would not find each other over Farlink: leave out --mpi, or \
                         name the launcher of {said}"
                    ),
                    _ => Ok(Self { family: said, own }),
                }
            }
            None if own => Ok(Self { family: family(program)?, own }),
            None => {
                find(program)?;
                bail!(
                    "{program:?} is not mpirun or mpiexec: say whose ranks it starts, --mpi open-mpi or --mpi mpich"
                )
            }
        }
    }

    pub(crate) const fn family(self) -> Mpi {
        self.family
    }

    /// Whether it is an MPI's own.
    pub(crate) const fn is_own(self) -> bool {
        self.own
    }

    /// Whether it takes what [`arguments`](Self::arguments) adds to these.
    pub(crate) fn accepts(self, arguments: &[OsString]) -> anyhow::Result<()> {
        if self.family != Mpi::OpenMpi || !self.own {
            return Ok(());
        }
        if let Some(option) = options(arguments).find(|word| APP_FILE.iter().any(|name| word == name)) {
            let option = option.to_string_lossy();
            bail!(
                "{option} makes mpirun ignore what is named beside it, and ranks of other hosts would not find Farlink: write the \
                 file's lines behind mpirun, with : between them"
            );
        }
        if std::env::var_os(format!("OMPI_MCA_{ENV_LIST}")).is_some() {
            bail!(
                "OMPI_MCA_{ENV_LIST} is set, beside which mpirun takes no -x: unset it, and write -x NAME behind mpirun for each of its \
                 variables"
            );
        }
        if options(arguments).any(|word| word == ENV_LIST) {
            bail!(
                "mpirun takes no -x beside --mca {ENV_LIST}: write -x NAME behind mpirun for each of its variables"
            );
        }
        Ok(())
    }

    /// Its arguments, with what makes it give the variables of `names` to ranks of other hosts. Their values are not among them: everybody
    /// on a host may read the arguments of its processes.
    ///
    /// MPICH's gives all that it has by itself, and would give nothing else if it was told what to give.
    pub(crate) fn arguments(self, arguments: &[OsString], names: &[OsString]) -> Vec<OsString> {
        if self.family != Mpi::OpenMpi || !self.own {
            return arguments.to_vec();
        }
        let told = programs(arguments).map(|program| {
            // It takes no name twice.
            let set = variables(program);
            let names = names.iter().filter(|name| !set.iter().any(|(its, _)| its == *name));
            let words = names.flat_map(|name| ["-x".into(), name.clone()]);
            words.chain(program.iter().cloned()).collect::<Vec<_>>()
        });
        told.collect::<Vec<_>>().join(&OsString::from(":"))
    }
}

/// Open MPI's options that name a file with programs.
const APP_FILE: [&str; 2] = ["--app", "-app"];

/// Open MPI's own way to name variables for ranks, which must be the only one.
const ENV_LIST: &str = "mca_base_env_list";

/// Whose launcher `program` is.
pub(crate) fn family(program: &OsStr) -> anyhow::Result<Mpi> {
    let path = find(program)?;
    let told = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let told = told.with_context(|| format!("start {} --version", path.display()))?;
    let text = [told.stdout, told.stderr].concat();
    recognised(&String::from_utf8_lossy(&text)).with_context(|| {
        format!("{program:?} is neither Open MPI's nor MPICH's: say --mpi open-mpi or --mpi mpich if it is")
    })
}

/// Whose launcher says that its version is `text`.
fn recognised(text: &str) -> Option<Mpi> {
    if text.contains("Open MPI") || text.contains("OpenRTE") {
        Some(Mpi::OpenMpi)
    } else if text.contains("HYDRA") {
        Some(Mpi::Mpich)
    } else {
        None
    }
}

/// Whether a program is called as launchers of MPI libraries are. Others are not asked for their version: a script of that name would
/// begin its work.
fn is_own(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    // Debian's have the library's name behind the dot.
    let name = name.split('.').next().unwrap_or_default();
    ["mpirun", "mpiexec", "orterun", "prterun"].contains(&name)
}

/// Whether a shell or the like would run it.
fn is_script(path: &Path) -> bool {
    let mut first = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_err() || first == *b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn launchers_say_whose_they_are() {
        assert_eq!(recognised("mpirun (Open MPI) 4.1.4\n\nReport bugs to"), Some(Mpi::OpenMpi));
        assert_eq!(recognised("orterun (OpenRTE) 4.1.4\n"), Some(Mpi::OpenMpi));
        assert_eq!(recognised("HYDRA build details:\n    Version: 5.0.2\n"), Some(Mpi::Mpich));
        assert_eq!(recognised("slurm 23.11.4\n"), None);
    }

    #[test]
    fn a_launcher_is_known_by_its_name() {
        for own in ["mpirun", "/usr/bin/mpiexec", "mpiexec.openmpi", "mpiexec.hydra", "orterun"] {
            assert!(is_own(own.as_ref()), "{own}");
        }
        for other in ["srun", "./job.sh", "mpirun-wrapper", ""] {
            assert!(!is_own(other.as_ref()), "{other}");
        }
    }

    #[test]
    fn open_mpi_is_told_the_names_for_every_program() {
        let launcher = Launcher { family: Mpi::OpenMpi, own: true };
        let told = launcher.arguments(&words("-n 1 ./a : -n 2 ./b x"), &words("KEY PATH"));
        assert_eq!(told, words("-x KEY -x PATH -n 1 ./a : -x KEY -x PATH -n 2 ./b x"));
        let told = launcher.arguments(&words("-x KEY=1 ./a : -n 2 ./b"), &words("KEY PATH"));
        assert_eq!(told, words("-x PATH -x KEY=1 ./a : -x KEY -x PATH -n 2 ./b"));
    }

    #[test]
    fn a_file_of_programs_is_refused_and_a_program_s_own_argument_is_not() {
        let launcher = Launcher { family: Mpi::OpenMpi, own: true };
        let error = launcher.accepts(&words("--host a,b --app file")).unwrap_err().to_string();
        assert!(error.contains("--app") && error.contains(": between them"), "{error}");
        assert!(launcher.accepts(&words("--hostfile /etc/passwd --app file")).is_err());
        let error = launcher.accepts(&words("-n 2 --mca mca_base_env_list A=1 ./a")).unwrap_err().to_string();
        assert!(error.contains("--mca mca_base_env_list") && error.contains("-x NAME"), "{error}");
        for its_own in
            ["-n 2 /bin/true --app file", "-wdir /work ./not-here --app file", "./not-here --app file"]
        {
            launcher.accepts(&words(its_own)).unwrap();
        }
        Launcher { family: Mpi::Mpich, own: true }.accepts(&words("--app file")).unwrap();
    }

    #[test]
    fn others_give_their_environment_by_themselves() {
        let arguments = words("-n 2 ./a");
        for (family, own) in [(Mpi::Mpich, true), (Mpi::OpenMpi, false)] {
            let launcher = Launcher { family, own };
            assert_eq!(launcher.arguments(&arguments, &words("KEY")), arguments);
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        for program in ["no-such-mpirun", "/no/such/mpirun"] {
            let error = Launcher::of(program.as_ref(), Some(Mpi::Mpich)).unwrap_err().to_string();
            assert!(error.contains(program), "{error}");
        }
        let error = Launcher::of("true".as_ref(), None).unwrap_err().to_string();
        assert!(error.contains("--mpi"), "{error}");
        assert!(Launcher::of("true".as_ref(), Some(Mpi::OpenMpi)).is_ok());
    }
}
