//! A model on a device, or a share of it on each of several.

use super::DecodeError;
use super::agree::agree_on_file;
use super::together::{Member, Split};
use super::weights::{self, LoadProgress, Weights};
use crate::model::{Config, ModelFile};
use std::sync::{Arc, Mutex, PoisonError};
use warpsmith_collectives::Collective;
use warpsmith_runtime::{Device, Error, MemoryInfo, Stream};

/// A model on a device, on several that run it together ([`load_over`](Model::load_over)), or what this process has of one that several run
/// ([`load_rank`](Model::load_rank)). Cheap to clone; sequences share its weights, which never change.
///
/// Loading takes memory for the weights alone, in the formats of the file; a [`Sequence`](super::Sequence) takes its
/// cache and a [`Decoder`](super::Decoder) its buffers. Identity is that of the object: two loads of one file are two
/// models, and nothing anywhere is looked up by name, shape or address.
#[derive(Clone)]
pub struct Model(Arc<ModelInner>);

struct ModelInner {
    file: ModelFile,
    lead: Rank,
    /// The other devices.
    others: Vec<Rank>,
    /// The other processes.
    processes: Option<Processes>,
}

/// The processes that run a model, this one among them.
struct Processes {
    split: Split,
    /// Which one this is, and how many there are.
    rank: (usize, usize),
    /// What they are a group by, unless a decoder has it.
    member: Mutex<Option<Box<Member>>>,
}

/// The group of processes, while a decoder has it.
pub(super) struct Joined {
    model: Model,
    member: Option<Box<Member>>,
}

impl Joined {
    /// This process's rank.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_deref()
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(processes) = &self.model.0.processes {
            *processes.member.lock().unwrap_or_else(PoisonError::into_inner) = self.member.take();
        }
    }
}

/// What a device has of a model.
pub(super) struct Rank {
    pub device: Device,
    /// Its share of the file.
    pub file: ModelFile,
    pub weights: Weights,
    pub bytes: u64,
    /// For copies that no decoder makes: snapshots, growing caches.
    pub stream: Stream,
}

impl Rank {
    /// A number that no other loaded weights have or will have.
    pub fn id(&self) -> u64 {
        self.weights.output_norm.weight.id()
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("file", &self.0.file).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Model {
    /// Uploads all weights. If they do not fit into free memory, nothing is allocated.
    pub fn load(device: &Device, file: &ModelFile) -> Result<Model, DecodeError> {
        Self::load_with(device, file, |_| {})
    }

    /// Uploads all weights and tells `progress` how far it is, some megabytes at a time.
    pub fn load_with(
        device: &Device,
        file: &ModelFile,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model, DecodeError> {
        Self::load_over_with(std::slice::from_ref(device), file, progress)
    }

    /// Uploads its [share](ModelFile::share) of the weights to each of several devices, which run the model together: all that is made of
    /// the model (decoders, sequences, pools, sessions) is used as with one.
    ///
    /// The sums over what devices hold are formed in their order, and so are others than those of one device: logits differ by rounding.
    ///
    /// # Errors
    /// [`ModelError::Share`](crate::model::ModelError::Share) where the model has no equal parts for so many, [`DecodeError::Devices`] for none and for one that is named twice;
    /// and as for one device.
    pub fn load_over(devices: &[Device], file: &ModelFile) -> Result<Model, DecodeError> {
        Self::load_over_with(devices, file, |_| {})
    }

    /// The same, and tells `progress` how far it is, one device after the other.
    pub fn load_over_with(
        devices: &[Device],
        file: &ModelFile,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model, DecodeError> {
        Self::of(devices, file, true, progress)
    }

    /// Uploads what one of several processes has of the model, which run it together: its [share](ModelFile::share) of every layer, or its
    /// [layers](ModelFile::stage). All processes make the call, each with its rank of one group and with the same file, and from then on make
    /// the same calls, with the same options, sequences and tokens. All of them get the tokens that are chosen.
    ///
    /// A model has one decoder at a time, as a group does one thing after the other. Where a rank fails or goes, the others get an error in
    /// the time that the group allows, and the model is lost to all: they load it again, with another group.
    ///
    /// # Errors
    /// As for [`load_over`](Self::load_over); [`DecodeError::Disagree`] for processes that have other files; and what the group says.
    pub fn load_rank(
        device: &Device,
        file: &ModelFile,
        rank: impl Collective + Sync + 'static,
        split: Split,
    ) -> Result<Model, DecodeError> {
        Self::load_rank_with(device, file, rank, split, |_| {})
    }

    /// The same, and tells `progress` how far it is.
    pub fn load_rank_with(
        device: &Device,
        file: &ModelFile,
        rank: impl Collective + Sync + 'static,
        split: Split,
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model, DecodeError> {
        let (number, ranks) = (rank.rank() as usize, rank.ranks() as usize);
        let share = match split {
            Split::Shares => file.share(number, ranks),
            Split::Stages => file.stage(number, ranks),
        }?;
        share.check_kernels()?;
        let bytes = Self::device_bytes(&share)?;
        check_memory(device, bytes)?;
        agree_on_file(&rank, &device.stream()?, file, split)?;
        let lead = Self::upload(device, share, (bytes, true), progress)?;
        let processes = Processes { split, rank: (number, ranks), member: Mutex::new(Some(Box::new(rank))) };
        Ok(Model(Arc::new(ModelInner { file: file.clone(), lead, others: Vec::new(), processes: Some(processes) })))
    }

    /// Memory for all weights, and nothing in it: for a file whose weights do not matter, as when launches of steps are looked at.
    pub fn reserve(device: &Device, file: &ModelFile) -> Result<Model, DecodeError> {
        Self::of(std::slice::from_ref(device), file, false, |_| {})
    }

    fn of(
        devices: &[Device],
        file: &ModelFile,
        fill: bool,
        mut progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Model, DecodeError> {
        let ordinals: Vec<u32> = devices.iter().map(Device::ordinal).collect();
        if ordinals.is_empty() || (1..ordinals.len()).any(|i| ordinals[..i].contains(&ordinals[i])) {
            return Err(DecodeError::Devices { ordinals });
        }
        let ranks = devices.len();
        let shares = (0..ranks).map(|rank| file.share(rank, ranks)).collect::<Result<Vec<_>, _>>()?;
        let sizes = shares.iter().map(Self::device_bytes).collect::<Result<Vec<u64>, _>>()?;
        let total = sizes.iter().sum();
        for ((device, share), &bytes) in devices.iter().zip(&shares).zip(&sizes) {
            share.check_kernels()?;
            check_memory(device, bytes)?;
        }
        let (mut before, mut all) = (0, Vec::with_capacity(ranks));
        for ((device, share), bytes) in devices.iter().zip(shares).zip(sizes) {
            let so_far = |p: LoadProgress<'_>| progress(LoadProgress { done: before + p.done, total, ..p });
            all.push(Self::upload(device, share, (bytes, fill), so_far)?);
            before += bytes;
        }
        let mut all = all.into_iter();
        let Some(lead) = all.next() else { return Err(DecodeError::Devices { ordinals }) };
        Ok(Model(Arc::new(ModelInner { file: file.clone(), lead, others: all.collect(), processes: None })))
    }

    fn upload(
        device: &Device,
        file: ModelFile,
        (bytes, fill): (u64, bool),
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Rank, DecodeError> {
        let span = tracing::debug_span!("load", bytes, layers = file.config().layers);
        let _entered = span.enter();
        let stream = device.stream()?;
        let weights = Weights::upload(&stream, &file, (bytes, fill), progress)?;
        // Other streams use the weights without waiting for this one.
        stream.synchronize()?;
        tracing::debug!("weights uploaded");
        Ok(Rank { device: device.clone(), file, weights, bytes, stream })
    }

    /// Device memory that the weights of a file, or of a [share](ModelFile::share) of one, take.
    pub fn device_bytes(file: &ModelFile) -> Result<u64, DecodeError> {
        weights::device_bytes(file)
    }

    /// The device that holds it; of several the first.
    pub fn device(&self) -> &Device {
        &self.0.lead.device
    }

    /// The devices that hold it.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        (0..self.0.others.len() + 1).map(|rank| &self.rank(rank).device)
    }

    /// Memory of its device; of several that of the one that has least of it free.
    pub fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let mut least = self.0.lead.device.memory_info()?;
        for rank in &self.0.others {
            let memory = rank.device.memory_info()?;
            if memory.free < least.free {
                least = memory;
            }
        }
        Ok(least)
    }

    /// Its numbers.
    pub fn config(&self) -> &Config {
        self.0.file.config()
    }

    /// The file that it was loaded from.
    pub fn file(&self) -> &ModelFile {
        &self.0.file
    }

    /// Device memory that the weights take; of several devices on the one where they take most.
    pub fn bytes(&self) -> u64 {
        self.all_ranks().map(|rank| rank.bytes).max().unwrap_or(0)
    }

    /// Numbers of what each device has of it: widths and heads are those of a share.
    pub(super) fn share(&self) -> &Config {
        self.0.lead.file.config()
    }

    /// How many devices of this process it is on.
    pub(super) fn ranks(&self) -> usize {
        1 + self.0.others.len()
    }

    /// How many devices have a share of every layer, whoever has them.
    pub(super) fn shares(&self) -> usize {
        match &self.0.processes {
            Some(Processes { split: Split::Shares, rank: (_, ranks), .. }) => *ranks,
            _ => self.ranks(),
        }
    }

    /// How processes divide it, if they do; which one this is, and how many there are.
    pub fn processes(&self) -> Option<(Split, usize, usize)> {
        self.0.processes.as_ref().map(|processes| (processes.split, processes.rank.0, processes.rank.1))
    }

    /// The group of processes, for a decoder; `None` where there are no others.
    pub(super) fn join(&self) -> Result<Option<Joined>, DecodeError> {
        let Some(processes) = &self.0.processes else { return Ok(None) };
        let member = processes.member.lock().unwrap_or_else(PoisonError::into_inner).take();
        match member {
            Some(member) => Ok(Some(Joined { model: self.clone(), member: Some(member) })),
            None => Err(DecodeError::OneDecoder),
        }
    }

    /// What device `rank` has of it; the first, where there are not so many.
    pub(super) fn rank(&self, rank: usize) -> &Rank {
        rank.checked_sub(1).and_then(|other| self.0.others.get(other)).unwrap_or(&self.0.lead)
    }

    pub(super) fn all_ranks(&self) -> impl Iterator<Item = &Rank> {
        std::iter::once(&self.0.lead).chain(&self.0.others)
    }

    /// The stream of the first device.
    pub(super) fn stream(&self) -> &Stream {
        &self.0.lead.stream
    }

    pub(super) fn weights(&self) -> &Weights {
        &self.0.lead.weights
    }

    /// Elements of the longest column that is gathered on any device; 0, where none is.
    pub(super) fn gathered(&self) -> usize {
        self.all_ranks().map(|rank| rank.weights.gathered()).max().unwrap_or(0)
    }

    /// A number that no other loaded model has or will have.
    pub(super) fn id(&self) -> u64 {
        self.0.lead.id()
    }
}

fn check_memory(device: &Device, bytes: u64) -> Result<(), DecodeError> {
    let memory = device.memory_info()?;
    if bytes <= memory.free {
        return Ok(());
    }
    Err(DecodeError::Memory {
        what: "the model",
        needed: bytes,
        parts: "its weights in the file's formats".into(),
        free: memory.free,
        total: memory.total,
        hint: "take a smaller model or a smaller format, or more devices; WARPSMITH_MEMORY sizes the software device",
    })
}
