//! The tensors inside an ONNX file: as much of the format as weights need.

use crate::Error;

/// Element types that weights come in.
const FLOAT: u64 = 1;
const UINT8: u64 = 2;
const INT8: u64 = 3;

/// One tensor of the file, by name; large ones are slices of the file.
pub(crate) struct Tensor<'a> {
    pub name: &'a str,
    pub dims: Vec<usize>,
    kind: u64,
    raw: &'a [u8],
    /// Small tensors may be written number by number instead.
    floats: Vec<f32>,
    ints: Vec<i32>,
}

impl<'a> Tensor<'a> {
    pub fn is_int8(&self) -> bool {
        self.kind == INT8
    }

    pub fn floats(&self) -> Result<Vec<f32>, Error> {
        if self.kind != FLOAT {
            return Err(Error::Weights(format!("{} is not f32", self.name)));
        }
        if self.raw.is_empty() {
            return Ok(self.floats.clone());
        }
        let (numbers, _) = self.raw.as_chunks::<4>();
        Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Numbers of one byte as signed ones; unsigned ones are moved down by 128.
    pub fn codes(&self) -> Result<Vec<i8>, Error> {
        match self.kind {
            INT8 if self.raw.is_empty() => Ok(self.ints.iter().map(|i| *i as i8).collect()),
            UINT8 if self.raw.is_empty() => {
                Ok(self.ints.iter().map(|i| (*i - 128) as i8).collect())
            }
            INT8 => Ok(self.raw.iter().map(|b| b.cast_signed()).collect()),
            UINT8 => Ok(self.raw.iter().map(|b| (b ^ 128).cast_signed()).collect()),
            _ => Err(Error::Weights(format!("{} is not of one byte", self.name))),
        }
    }
}

/// Every tensor of a model file, in the order of the file.
pub(crate) fn tensors(file: &[u8]) -> Result<Vec<Tensor<'_>>, Error> {
    let mut found = Vec::new();
    for (number, value) in Fields(file) {
        let (7, Value::Bytes(graph)) = (number, value?) else {
            continue;
        };
        for (number, value) in Fields(graph) {
            if let (5, Value::Bytes(tensor)) = (number, value?) {
                found.push(read(tensor)?);
            }
        }
    }
    Ok(found)
}

fn read(bytes: &[u8]) -> Result<Tensor<'_>, Error> {
    let mut tensor = Tensor {
        name: "",
        dims: Vec::new(),
        kind: 0,
        raw: &[],
        floats: Vec::new(),
        ints: Vec::new(),
    };
    for (number, value) in Fields(bytes) {
        match (number, value?) {
            (1, Value::Number(dim)) => tensor.dims.push(dim as usize),
            (1, Value::Bytes(packed)) => {
                for dim in numbers(packed) {
                    tensor.dims.push(dim? as usize);
                }
            }
            (2, Value::Number(kind)) => tensor.kind = kind,
            (4, Value::Four(bits)) => tensor.floats.push(f32::from_le_bytes(bits)),
            (4, Value::Bytes(packed)) => {
                let (floats, _) = packed.as_chunks::<4>();
                tensor
                    .floats
                    .extend(floats.iter().map(|b| f32::from_le_bytes(*b)));
            }
            (5, Value::Number(int)) => tensor.ints.push(int as i32),
            (5, Value::Bytes(packed)) => {
                for int in numbers(packed) {
                    tensor.ints.push(int? as i32);
                }
            }
            (8, Value::Bytes(name)) => {
                tensor.name = std::str::from_utf8(name).map_err(|_| cut())?;
            }
            (9, Value::Bytes(raw)) => tensor.raw = raw,
            _ => {}
        }
    }
    Ok(tensor)
}

/// The fields of one message, number and value.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    Four([u8; 4]),
    Eight,
    Bytes(&'a [u8]),
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Result<Value<'a>, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut field = || {
            let key = number(&mut self.0)?;
            let value = match key & 7 {
                0 => Value::Number(number(&mut self.0)?),
                1 => take(&mut self.0, 8).map(|_| Value::Eight)?,
                2 => {
                    let length = number(&mut self.0)?;
                    Value::Bytes(take(&mut self.0, length as usize)?)
                }
                5 => Value::Four(take(&mut self.0, 4)?.try_into().ok()?),
                _ => return None,
            };
            Some((key >> 3, value))
        };
        match field() {
            Some((number, value)) => Some((number, Ok(value))),
            None => {
                self.0 = &[];
                Some((0, Err(cut())))
            }
        }
    }
}

fn cut() -> Error {
    Error::Weights("the file is cut short or no ONNX file".into())
}

fn take<'a>(from: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(n)?;
    *from = rest;
    Some(taken)
}

fn number(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(from, 1)?.first()?;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

fn numbers(mut packed: &[u8]) -> impl Iterator<Item = Result<u64, Error>> {
    std::iter::from_fn(move || {
        (!packed.is_empty()).then(|| {
            number(&mut packed).ok_or_else(|| {
                packed = &[];
                cut()
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one tensor `w` of two floats.
    const FILE: [u8; 19] = [
        0x3a, 17, // the graph
        0x2a, 15, // a tensor
        0x08, 2, // dims
        0x10, 1, // f32
        0x42, 1, b'w', // name
        0x4a, 4, 0, 0, 128, 63, // raw: 1.0
        0, 0,
    ];

    #[test]
    fn a_tensor_is_found_by_its_name_and_a_cut_file_is_an_error() {
        let whole = &FILE[..17];
        let mut file = whole.to_vec();
        file[1] = 15;
        file[3] = 13;
        let found = tensors(&file).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name, found[0].dims.as_slice()), ("w", &[2][..]));
        assert_eq!(found[0].floats().unwrap(), [1.0]);
        assert!(found[0].codes().is_err());
        for length in 1..file.len() {
            assert!(tensors(&file[..length]).is_err(), "{length} bytes");
        }
        assert!(tensors(&[0xff; 40]).is_err());
        assert!(tensors(b"").unwrap().is_empty());
    }
}
