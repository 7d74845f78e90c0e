//! The variants that need byte shuffles.

use super::arms::{Element, General};
use crate::lz::x86::{Permute32, Permute64, Shuffle16, arm};
use crate::lz::{Cursor, run};

arm!(plain, General<Permute64>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(shuffle, Element<Shuffle16>, "avx2,bmi1,bmi2,lzcnt,popcnt,movbe");
arm!(permute, Element<Permute32>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
arm!(permute_wide, Element<Permute64>, "avx512f,avx512bw,avx512vl,avx512vbmi,bmi1,bmi2");
