//! The rows of paused memory: the tag that a program has from its start, and where contents are kept.
//!
//! torch_memory_saver's variables are their aliases, with their own words for yes and no.

use super::option::{Alias, OptionSpec, assign};
use super::settings::Settings;
use super::value::{AUTO, OFF, optional, show_optional, show_switch, switch, word, yes};
use crate::base::Backup;

/// The tag of threads that have begun none.
pub(super) const TAG: OptionSpec = OptionSpec {
    name: "GENESIS_TAG",
    aliases: &[Alias {
        name: "TMS_INIT_ENABLE",
        parse: |settings, text| {
            assign(&mut settings.default_tag, yes(text).map(|yes| yes.then(saver_tag)))
        },
    }],
    values: "a name, or `off`",
    summary: "The tag of threads that have begun none.",
    help: "With a tag, memory can be paused in a program that is not changed.",
    runtime: false,
    parse: |settings, text| {
        assign(&mut settings.default_tag, optional(text, OFF, |name| Ok(name.to_owned())))
    },
    show: |settings| show_optional(settings.default_tag.clone(), OFF, |name| name),
};

/// What is kept of its memory.
pub(super) const TAG_BACKUP: OptionSpec = OptionSpec {
    name: "GENESIS_TAG_BACKUP",
    aliases: &[
        Alias {
            name: "TMS_INIT_ENABLE_CPU_BACKUP",
            parse: |settings, text| set_backup(settings, text, Backup::Pinned),
        },
        Alias {
            name: "TMS_INIT_ENABLE_DISK_BACKUP",
            parse: |settings, text| set_backup(settings, text, Backup::Disk),
        },
    ],
    values: "`none`, `pinned`, `pageable` or `disk`",
    summary: "What is kept of the memory of GENESIS_TAG while it is paused.",
    help: "Its contents go to host memory, page-locked always or while they are copied, or to a \
           file.",
    runtime: false,
    parse: |settings, text| {
        let backup = word(text, "a backup", Backup::ALL, Backup::name);
        assign(&mut settings.default_backup, backup)
    },
    show: |settings| settings.default_backup.name().to_owned(),
};

/// What torch_memory_saver's functions mean by host memory.
pub(super) const SAVER_BACKUP: OptionSpec = OptionSpec {
    name: "GENESIS_SAVER_BACKUP",
    aliases: &[Alias { name: "TMS_INIT_CPU_BACKUP_BACKEND", parse: set_saver_backup }],
    values: "`pinned` or `pageable`",
    summary: "torch_memory_saver's interface: the host memory that backups go to by default.",
    help: "",
    runtime: false,
    parse: |settings, text| {
        let all = [Backup::Pinned, Backup::Pageable];
        assign(&mut settings.saver_backup, word(text, "host memory", &all, Backup::name))
    },
    show: |settings| settings.saver_backup.name().to_owned(),
};

/// Where files are made.
pub(super) const FOLDER: OptionSpec = OptionSpec {
    name: "GENESIS_BACKUP_FOLDER",
    aliases: &[Alias {
        name: "TMS_DISK_BACKUP_DIR",
        parse: |settings, text| {
            settings.backup_folder = Some(text.to_owned());
            Ok(())
        },
    }],
    values: "the path of a folder, or `auto`",
    summary: "Where files with the contents of paused memory are made.",
    help: "They have no names. auto is the system's folder for temporary files. A folder in \
           memory (tmpfs) saves none.",
    runtime: true,
    parse: |settings, text| {
        assign(&mut settings.backup_folder, optional(text, AUTO, |path| Ok(path.to_owned())))
    },
    show: |settings| show_optional(settings.backup_folder.clone(), AUTO, |path| path),
};

/// Whether what was saved stays.
pub(super) const RETAIN: OptionSpec = OptionSpec {
    name: "GENESIS_BACKUP_RETAIN",
    aliases: &[Alias {
        name: "TMS_RETAIN_CPU_BACKUP",
        parse: |settings, text| assign(&mut settings.backup_retain, yes(text)),
    }],
    values: "`on` or `off`",
    summary: "Whether the contents saved of paused memory stay after it was resumed.",
    help: "The next pause then needs no new host memory, which takes longer than the copies.",
    runtime: false,
    parse: |settings, text| assign(&mut settings.backup_retain, switch(text)),
    show: |settings| show_switch(settings.backup_retain).to_owned(),
};

/// Whether users see how far it is.
pub(super) const PROGRESS: OptionSpec = OptionSpec {
    name: "GENESIS_PROGRESS",
    aliases: &[],
    values: "`on` or `off`",
    summary: "Whether a terminal shows how far a pause or resume is that takes longer than a second.",
    help: "It is a line on standard error, which is erased at the end. Nothing is written where that \
           is no terminal.",
    runtime: true,
    parse: |settings, text| assign(&mut settings.shows_progress, switch(text)),
    show: |settings| show_switch(settings.shows_progress).to_owned(),
};

/// torch_memory_saver's name for what is in no region of another name.
fn saver_tag() -> String {
    "default".to_owned()
}

/// Has the default tag backed up in this way if `text`, of torch_memory_saver's, is yes.
fn set_backup(settings: &mut Settings, text: &str, backup: Backup) -> Result<(), String> {
    let backup = if yes(text)? { backup } else { Backup::None };
    settings.default_backup = backup;
    Ok(())
}

/// torch_memory_saver's word for the host memory of all backups.
fn set_saver_backup(settings: &mut Settings, text: &str) -> Result<(), String> {
    let name = |backup| if backup == Backup::Pageable { "mmap" } else { Backup::name(backup) };
    let backup = word(text, "host memory", &[Backup::Pinned, Backup::Pageable], name)?;
    settings.saver_backup = backup;
    if settings.default_backup == Backup::Pinned {
        settings.default_backup = backup;
    }
    Ok(())
}
