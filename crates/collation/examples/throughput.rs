//! Bytes of text per second that become keys, one text at a time and in bulk, against a copy of the bytes.

use std::hint::black_box;
use std::time::Instant;

use keirin_collation::{Collation, Keys, PadOrder};
use keirin_testkit::columns::Random;

const ROUND_COUNT: usize = 9;

fn main() {
    let ascii = ["Mozilla/5.0 (X11; Linux x86_64)", "https://example.com/a/b?c=1", "Amsterdam", "select"];
    let russian =
        ["Привет, мир", "Москва", "скачать бесплатно без регистрации", "отдам даром мебель в Казани"];
    let mixed = ["Straße", "Ærøskøbing", "naïve café", "中国人民", "한국어 가나다", "😀 emoji"];
    for (name, pieces) in [("ascii", &ascii[..]), ("russian", &russian), ("mixed", &mixed)] {
        let mut random = Random::new(1);
        let texts: Vec<&str> = (0..20_000)
            .map(|_| pieces[usize::try_from(random.below(pieces.len() as u64)).expect("small")])
            .collect();
        let bytes: Vec<u8> = texts.concat().into_bytes();
        for collation in [
            "utf8mb4_bin",
            "utf8mb4_general_ci",
            "utf8mb4_unicode_ci",
            "utf8mb4_0900_ai_ci",
            "utf8mb4_0900_as_cs",
        ] {
            let keys = Keys::new(Collation::find(collation).expect("it is there"), PadOrder::Tidb);
            let one_by_one =
                best(bytes.len(), |out| texts.iter().for_each(|text| keys.append_key(text, out)));
            let folded = best(bytes.len(), |out| texts.iter().for_each(|text| keys.append_fold(text, out)));
            let bulk = best(bytes.len(), |out| _ = black_box(keys.append_ascii_keys(&bytes, out)));
            println!(
                "{name:8} {collation:20} key {one_by_one:6.2} GB/s  fold {folded:6.2}  bulk ASCII {bulk:6.2}"
            );
        }
        let copied =
            best(bytes.len(), |out| texts.iter().for_each(|text| out.extend_from_slice(text.as_bytes())));
        println!("{name:8} copied one by one       {copied:6.2} GB/s");
    }
    for (name, left, right) in
        [("ascii", "Amsterdam Centraal", "Amsterdam centrum"), ("russian", "привет мир", "Привет Мир")]
    {
        let keys = Keys::new(Collation::find("utf8mb4_0900_ai_ci").expect("it is there"), PadOrder::Tidb);
        let begin = Instant::now();
        (0..100_000).for_each(|_| _ = black_box(keys.compare(black_box(left), right)));
        println!("{name:8} compare {:.1} ns", begin.elapsed().as_secs_f64() * 1e4);
    }
}

fn best(byte_count: usize, mut work: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut out = Vec::new();
    let times = (0..ROUND_COUNT).map(|_| {
        out.clear();
        let begin = Instant::now();
        work(&mut out);
        black_box(&mut out);
        begin.elapsed().as_secs_f64()
    });
    byte_count as f64 / times.fold(f64::MAX, f64::min) / 1e9
}
