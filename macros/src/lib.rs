//! The #[kernel] attribute
