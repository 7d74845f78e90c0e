//! Over all cases of a suite: how each lane does against the first.

/// Ratios of lanes to the first lane, case by case.
#[derive(Debug, Default)]
pub(crate) struct Geomeans {
    engines: Vec<String>,
    /// For each engine its ratio in each case.
    ratios: Vec<Vec<f64>>,
    cases: Vec<String>,
    best_variants: Vec<f64>,
}

impl Geomeans {
    /// Adds a case: lanes and their speeds, the reference first.
    pub(crate) fn add(&mut self, case: &str, engines: &[String], speeds: &[f64]) {
        let Some(reference) = speeds.first() else { return };
        if self.engines.is_empty() {
            self.engines = engines.to_vec();
            self.ratios = vec![Vec::new(); engines.len()];
        }
        for (ratios, speed) in self.ratios.iter_mut().zip(speeds) {
            ratios.push(speed / reference);
        }
        let variants = engines.iter().zip(speeds).filter(|(engine, _)| is_variant(engine));
        let best = variants.map(|(_, speed)| speed / reference).fold(0.0, f64::max);
        self.best_variants.push(best);
        self.cases.push(case.to_owned());
    }

    /// Prints a line for each engine: the geometric mean, and the worst case.
    pub(crate) fn print(&self, title: &str) {
        if self.cases.is_empty() {
            return;
        }
        println!("  {title}, {} cases, against {}", self.cases.len(), self.engines[0]);
        for (engine, ratios) in self.engines.iter().zip(&self.ratios) {
            self.line(engine, ratios);
        }
        self.line("best variant of each", &self.best_variants);
        let wins: Vec<String> = self
            .engines
            .iter()
            .zip(&self.ratios)
            .filter(|(engine, _)| is_variant(engine))
            .map(|(engine, ratios)| {
                let wins = ratios.iter().zip(&self.best_variants).filter(|(a, b)| a == b).count();
                format!("{} {wins}", engine.trim_start_matches("keirin:"))
            })
            .collect();
        println!("    first: {}", wins.join(", "));
    }

    fn line(&self, engine: &str, ratios: &[f64]) {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let worst =
            (0..ratios.len()).min_by(|a, b| ratios[*a].total_cmp(&ratios[*b])).expect("there are cases");
        println!("    {engine:<24} {mean:>6.3}x   worst {:>6.3}x in {}", ratios[worst], self.cases[worst]);
    }
}

fn is_variant(engine: &str) -> bool {
    engine.starts_with("keirin:") && engine != "keirin:cold"
}
