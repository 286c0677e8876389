//! A finding with what the driver and the command know about it.

use std::fmt;

use serde::{Deserialize, Serialize};
use warpsmith_simt::{Frame, Launch};

use crate::{Finding, own_frame};

/// A function of the host program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFrame {
    /// Its name.
    pub function: String,
    /// The file, if the program has line information.
    pub file: Option<String>,
    /// The line, 0 if unknown.
    pub line: u32,
}

impl fmt::Display for HostFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{} in {}", self.line, self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// Who called the driver: the function of the driver API, and the callers of it, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSite {
    /// Such as `cuLaunchKernel`; empty if unknown.
    pub api: String,
    /// The program's functions.
    pub frames: Vec<HostFrame>,
}

/// A finding and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is wrong. Its count is over all launches of the group.
    pub finding: Finding,
    /// Shape of the launch, if it is one's doing.
    pub launch: Option<Launch>,
    /// The call of the driver that did it.
    pub site: HostSite,
    /// Who allocated the memory in question.
    pub allocation: Option<HostSite>,
    /// Who freed it.
    pub freed: Option<HostSite>,
    /// Of undefined data, who allocated the memory that it was read from first, if that is other memory.
    pub source: Option<HostSite>,
    /// A command that shows it again; empty if unknown.
    pub replay: String,
    /// The case of a kernel that ships in which it was first seen.
    pub shape: Option<String>,
    /// The number of the process that it is from, where several report.
    pub process: Option<u32>,
}

impl Report {
    /// A finding of which nothing more is known.
    pub fn new(finding: Finding) -> Report {
        let (launch, site, allocation, freed, source, replay, shape, process) = Default::default();
        Report { finding, launch, site, allocation, freed, source, replay, shape, process }
    }

    /// The place that the finding is best shown at: the innermost in the code of the kernel's own crate.
    pub fn place(&self) -> Option<&Frame> {
        self.finding.sites.iter().find_map(|site| own_frame(&site.source))
    }

    /// Where it is shown: file, line, and column, 0 if unknown. What has no place in a kernel has one in the host program: the
    /// call, or who allocated the memory.
    pub fn shown_at(&self) -> Option<(&str, u32, u32)> {
        if let Some(frame) = self.place() {
            return Some((&frame.file, frame.line, frame.column));
        }
        let frames = [Some(&self.site), self.allocation.as_ref()].into_iter().flatten().flat_map(|site| &site.frames);
        frames.filter_map(|frame| frame.file.as_deref().map(|file| (file, frame.line, 0))).next()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.finding)?;
        if let Some(Launch { grid: [gx, gy, gz], block: [bx, by, bz], dynamic_shared, .. }) = self.launch {
            write!(f, "\n  launched as grid ({gx},{gy},{gz}) of blocks ({bx},{by},{bz})")?;
            if dynamic_shared != 0 {
                write!(f, " with {dynamic_shared} bytes of dynamic shared memory")?;
            }
        }
        let mut place = |what: &str, site: &HostSite| -> fmt::Result {
            if site.frames.is_empty() && site.api.is_empty() {
                return Ok(());
            }
            write!(f, "\n  {what}")?;
            if !site.api.is_empty() {
                write!(f, " by {}", site.api)?;
            }
            site.frames.iter().try_for_each(|frame| write!(f, "\n    from {frame}"))
        };
        place(if self.launch.is_some() { "launched" } else { "called" }, &self.site)?;
        if let Some(site) = &self.allocation {
            place("memory allocated", site)?;
        }
        if let Some(site) = &self.freed {
            place("memory freed", site)?;
        }
        if let Some(site) = &self.source {
            place("memory of the undefined data allocated", site)?;
        }
        if !self.replay.is_empty() {
            write!(f, "\n  replay: {}", self.replay)?;
        }
        Ok(())
    }
}
