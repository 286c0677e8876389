//! Functions that go from −1 to 1: the hyperbolic tangent and the error function.

use super::{abs, exp};

/// The hyperbolic tangent within 2 ulp.
///
/// Method: near 0 x + x³ P(x²) / Q(x²), which is Cephes'; else 1 − 2 / (e^(2|x|) + 1).
pub fn tanh(x: f64) -> f64 {
    let a = abs(x);
    let r = if a < 0.625 {
        let z = a * a;
        let p = polynomial!(z, -9.643_991_794_250_522e-1, -9.928_772_310_019_185e1, -1.614_687_684_417_084_5e3);
        let q = polynomial!(z, 1.0, 1.128_116_784_916_329_3e2, 2.235_488_390_601_004e3, 4.844_063_053_251_255e3);
        a + a * (z * (p / q))
    } else {
        1.0 - 2.0 / (exp(2.0 * a) + 1.0)
    };
    with_sign(r, x)
}

/// The error function: 2/√π times the integral of e^(−t²) from 0 to x.
///
/// Method: rational functions of x², and from 1.25 on 1 − e^(−x² + R(1/x²)) / |x|. Source: FreeBSD's `erf`.
pub fn erf(x: f64) -> f64 {
    let a = abs(x);
    let r = if a < 0.84375 {
        let z = a * a;
        let p = polynomial!(
            z,
            -2.376_301_665_665_016_3e-5,
            -5.770_270_296_489_442e-3,
            -2.848_174_957_559_851e-2,
            -3.250_421_072_470_015e-1,
            1.283_791_670_955_125_6e-1
        );
        let q = polynomial!(
            z,
            -3.960_228_278_775_368e-6,
            1.324_947_380_043_216_4e-4,
            5.081_306_281_875_766e-3,
            6.502_224_998_876_73e-2,
            3.979_172_239_591_553_5e-1,
            1.0
        );
        a + a * (p / q)
    } else if a < 1.25 {
        let s = a - 1.0;
        let p = polynomial!(
            s,
            -2.166_375_594_868_791e-3,
            3.547_830_432_561_823_6e-2,
            -1.108_946_942_823_966_8e-1,
            3.183_466_199_011_617_5e-1,
            -3.722_078_760_357_013e-1,
            4.148_561_186_837_483_3e-1,
            -2.362_118_560_752_659_4e-3
        );
        let q = polynomial!(
            s,
            1.198_449_984_679_910_7e-2,
            1.363_708_391_202_905e-2,
            1.261_712_198_087_616_4e-1,
            7.182_865_441_419_627e-2,
            5.403_979_177_021_71e-1,
            1.064_208_804_008_442_3e-1,
            1.0
        );
        8.450_629_115_104_675e-1 + p / q
    } else if a < 6.0 {
        1.0 - above_one(a)
    } else if a.is_nan() {
        a
    } else {
        1.0
    };
    with_sign(r, x)
}

/// 1 − erf(x) for x of 1.25 to 6.
#[inline(always)]
fn above_one(x: f64) -> f64 {
    let s = 1.0 / (x * x);
    let (p, q) = if x < 1.0 / 0.35 {
        (
            polynomial!(
                s,
                -9.814_329_344_169_145,
                -8.128_743_550_630_66e1,
                -1.846_050_929_067_110_4e2,
                -1.623_966_694_625_734_7e2,
                -6.237_533_245_032_600_6e1,
                -1.055_862_622_532_329_1e1,
                -6.938_585_727_071_818e-1,
                -9.864_944_034_847_148e-3
            ),
            polynomial!(
                s,
                -6.042_441_521_485_81e-2,
                6.570_249_770_319_282,
                1.086_350_055_417_794_4e2,
                4.290_081_400_275_678_3e2,
                6.453_872_717_332_679e2,
                4.345_658_774_752_292_3e2,
                1.376_577_541_435_190_4e2,
                1.965_127_166_743_925_7e1,
                1.0
            ),
        )
    } else {
        (
            polynomial!(
                s,
                -4.835_191_916_086_514e2,
                -1.025_095_131_611_077_2e3,
                -6.375_664_433_683_896e2,
                -1.606_363_848_558_219_2e2,
                -1.775_795_491_775_475_2e1,
                -7.992_832_376_805_23e-1,
                -9.864_942_924_700_1e-3
            ),
            polynomial!(
                s,
                -2.244_095_244_658_582e1,
                4.745_285_412_069_553_7e2,
                2.553_050_406_433_164_4e3,
                3.199_858_219_508_595_5e3,
                1.536_729_586_084_437e3,
                3.257_925_129_965_739e2,
                3.033_806_074_348_246e1,
                1.0
            ),
        )
    };
    // The square of the upper half is exact.
    let z = f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000);
    exp(-z * z - 0.5625) * exp((z - x) * (z + x) + p / q) / x
}

#[inline(always)]
fn with_sign(magnitude: f64, of: f64) -> f64 {
    f64::from_bits(magnitude.to_bits() | of.to_bits() & 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::super::super::powers::tests::noise;
    use super::super::tests::ulps;
    use super::*;

    #[test]
    fn they_keep_their_bounds() {
        for v in noise(200_000) {
            let unit = (v >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            for x in [unit * 1e-200, unit * 1e-4, unit, unit * 3.0, unit * 7.0, unit * 30.0] {
                // Those of the system and of libm are within 1 ulp themselves.
                let (ours, theirs) = (tanh(x), x.tanh());
                assert!(ulps(ours, theirs) <= 3, "tanh({x:e}) = {ours:e}, not {theirs:e}");
                let (ours, theirs) = (erf(x), libm::erf(x));
                assert!(ulps(ours, theirs) <= 1, "erf({x:e}) = {ours:e}, not {theirs:e}");
            }
        }
        for (f, name) in [(tanh as fn(f64) -> f64, "tanh"), (erf, "erf")] {
            assert_eq!((f(f64::INFINITY), f(f64::NEG_INFINITY), f(-1e300)), (1.0, -1.0, -1.0), "{name}");
            assert_eq!((f(0.0).to_bits(), f(-0.0).to_bits()), (0, 1 << 63), "{name}");
            assert!(f(f64::NAN).is_nan() && f(-f64::NAN).is_nan(), "{name}");
        }
    }

    /// mpmath 1.4.1 with 60 digits, rounded.
    #[test]
    fn they_are_what_another_program_computes() {
        for (x, tanh_of, erf_of) in [
            (1e-09, 1e-09, 1.1283791670955127e-09),
            (0.1, 0.09966799462495582, 0.1124629160182849),
            (0.5, 0.46211715726000974, 0.5204998778130465),
            (0.6249, 0.5545304765944484, 0.6231645274630255),
            (0.625, 0.5545997223493823, 0.623240882188418),
            (0.75, 0.6351489523872873, 0.7111556336535151),
            (0.85, 0.6910694698329306, 0.7706680576083526),
            (1.0, 0.7615941559557649, 0.8427007929497149),
            (1.3, 0.8617231593133063, 0.9340079449406524),
            (2.5, 0.9866142981514303, 0.999593047982555),
            (-2.9, -0.9939631673505831, -0.9999589021219005),
            (5.5, 0.9999665971563038, 0.9999999999999927),
        ] {
            assert!(ulps(tanh(x), tanh_of) <= 2, "tanh({x}) = {:e}, not {tanh_of:e}", tanh(x));
            assert!(ulps(erf(x), erf_of) <= 1, "erf({x}) = {:e}, not {erf_of:e}", erf(x));
        }
    }
}
