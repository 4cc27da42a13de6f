//! Go's gob format for structs, lists, texts and numbers: a stream of values. The stream describes
//! each type before its first value.

use std::collections::BTreeMap;

/// A value in a gob stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Boolean or unsigned number.
    Uint(u64),
    /// Signed number.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
    /// Values of one type.
    List(Vec<Value>),
    /// Fields by name. Fields with a zero value are omitted.
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// Returns a field of a struct; `None` if the field has a zero value.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Struct(fields) = self else {
            return None;
        };
        fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value)
    }

    /// Returns a text field; empty if absent.
    pub fn text(&self, name: &str) -> &str {
        if let Some(Self::Text(text)) = self.get(name) {
            text
        } else {
            ""
        }
    }

    /// Returns a field of bytes; empty if absent.
    pub fn bytes(&self, name: &str) -> &[u8] {
        if let Some(Self::Bytes(bytes)) = self.get(name) {
            bytes
        } else {
            &[]
        }
    }

    /// Returns a signed or unsigned number field; `None` if the number is zero or does not fit.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Self::Int(number) => Some(*number),
            Self::Uint(number) => i64::try_from(*number).ok(),
            Self::Bytes(_) | Self::Text(_) | Self::List(_) | Self::Struct(_) => None,
        }
    }

    /// Returns the items of a list field; empty if absent.
    pub fn items(&self, name: &str) -> &[Self] {
        if let Some(Self::List(items)) = self.get(name) {
            items
        } else {
            &[]
        }
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Uint(number) => *number == 0,
            Self::Int(number) => *number == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Struct(fields) => fields.iter().all(|(_, value)| value.is_zero()),
        }
    }
}

/// Type of a value to encode.
#[derive(Debug)]
pub enum Shape {
    /// Unsigned number.
    Uint,
    /// Signed number.
    Int,
    /// Bytes.
    Bytes,
    /// Text.
    Text,
    /// List of values of this type.
    List(&'static Shape),
    /// Struct with a type name, and fields in order.
    Struct(&'static str, &'static [(&'static str, &'static Shape)]),
}

/// Maximum length of a received message in bytes. A network configuration has a few thousand bytes.
const MOST: usize = 4 << 20;
/// Maximum nesting depth of received types.
const DEEPEST: usize = 16;

// Predefined types of every stream (Go's encoding/gob, "Type representation").
const BOOL: i64 = 1;
const INT: i64 = 2;
const UINT: i64 = 3;
const BYTES: i64 = 5;
const TEXT: i64 = 6;
const WIRE: i64 = 16;
const COMMON: i64 = 18;
const SLICE: i64 = 19;
const STRUCT: i64 = 20;
const FIELD: i64 = 21;
const FIELDS: i64 = 22;
/// First id of a type that the stream describes.
const FIRST: i64 = 64;

#[derive(Debug, Clone)]
enum Type {
    List(i64),
    Struct(Vec<(String, i64)>),
}

/// Decodes the values of a stream.
#[derive(Debug)]
pub struct Decoder {
    types: BTreeMap<i64, Type>,
}

impl Default for Decoder {
    fn default() -> Self {
        let struct_type = |fields: &[(&str, i64)]| {
            Type::Struct(
                fields
                    .iter()
                    .map(|(n, id)| ((*n).to_owned(), *id))
                    .collect(),
            )
        };
        let types = [
            // Arrays are decoded like lists. Maps and types with their own encoding are not used.
            (
                WIRE,
                struct_type(&[("ArrayT", SLICE), ("SliceT", SLICE), ("StructT", STRUCT)]),
            ),
            (COMMON, struct_type(&[("Name", TEXT), ("Id", INT)])),
            (
                SLICE,
                struct_type(&[("CommonType", COMMON), ("Elem", INT), ("Len", INT)]),
            ),
            (
                STRUCT,
                struct_type(&[("CommonType", COMMON), ("Field", FIELDS)]),
            ),
            (FIELD, struct_type(&[("Name", TEXT), ("Id", INT)])),
            (FIELDS, Type::List(FIELD)),
        ];
        Self {
            types: types.into(),
        }
    }
}

impl Decoder {
    /// Decodes the next value; `None` if the value is incomplete. Also returns the number of
    /// consumed bytes.
    pub fn next(&mut self, stream: &[u8]) -> Result<(Option<Value>, usize), String> {
        let mut at = 0;
        loop {
            let mut rest = Reader(&stream[at..]);
            let Some(len) = rest.peek_uint()? else {
                return Ok((None, at));
            };
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len <= MOST)
                .ok_or("gob: a message is too long")?;
            let Some(message) = rest.0.get(..len) else {
                return Ok((None, at));
            };
            at = stream.len() - rest.0.len() + len;
            let mut message = Reader(message);
            let id = message.int()?;
            if id < 0 {
                let wire = self.value(WIRE, &mut message, 0)?;
                self.define(id.checked_neg().ok_or("gob: invalid type id")?, &wire)?;
            } else if matches!(self.types.get(&id), Some(Type::Struct(_))) {
                return Ok((Some(self.value(id, &mut message, 0)?), at));
            } else {
                return Err(format!("gob: a value of type {id}, which is not a struct"));
            }
        }
    }

    fn define(&mut self, id: i64, wire: &Value) -> Result<(), String> {
        let elem = |list: &Value| list.number("Elem").unwrap_or_default();
        let new = match (
            wire.get("StructT"),
            wire.get("SliceT").or(wire.get("ArrayT")),
        ) {
            (Some(description), _) => {
                let field = |field: &Value| {
                    (
                        field.text("Name").to_owned(),
                        field.number("Id").unwrap_or_default(),
                    )
                };
                Type::Struct(description.items("Field").iter().map(field).collect())
            }
            (None, Some(list)) => Type::List(elem(list)),
            (None, None) => return Err(format!("gob: type {id} is neither a struct nor a list")),
        };
        if id < FIRST || self.types.insert(id, new).is_some() {
            return Err(format!("gob: type {id} is described twice"));
        }
        Ok(())
    }

    fn value(&self, id: i64, from: &mut Reader<'_>, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err("gob: types are nested too deeply".to_owned());
        }
        match id {
            BOOL | UINT => return Ok(Value::Uint(from.uint()?)),
            INT => return Ok(Value::Int(from.int()?)),
            BYTES => return Ok(Value::Bytes(from.counted()?.to_vec())),
            TEXT => {
                return Ok(Value::Text(
                    String::from_utf8_lossy(from.counted()?).into_owned(),
                ));
            }
            _ => {}
        }
        match self.types.get(&id) {
            Some(Type::List(elem)) => {
                let count = from.uint()?;
                // Each item has at least one byte.
                if count > from.0.len() as u64 {
                    return Err("gob: a list is longer than its message".to_owned());
                }
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(*elem, from, depth + 1)?);
                }
                Ok(Value::List(items))
            }
            Some(Type::Struct(fields)) => {
                let (mut values, mut next) = (Vec::new(), 0_usize);
                loop {
                    let delta = usize::try_from(from.uint()?).unwrap_or(usize::MAX);
                    if delta == 0 {
                        return Ok(Value::Struct(values));
                    }
                    next = next.saturating_add(delta);
                    let (name, field_type) = fields
                        .get(next - 1)
                        .ok_or_else(|| format!("gob: type {id} has no field {next}"))?;
                    values.push((name.clone(), self.value(*field_type, from, depth + 1)?));
                }
            }
            None => Err(format!("gob: type {id} is not described")),
        }
    }
}

/// Unread bytes of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads an unsigned number; `None` if the number is incomplete.
    fn peek_uint(&mut self) -> Result<Option<u64>, String> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(None);
        };
        if *first < 0x80 {
            self.0 = rest;
            return Ok(Some(u64::from(*first)));
        }
        // Negated count of the following bytes.
        let count = usize::from(first.wrapping_neg());
        if count > 8 {
            return Err(format!("gob: a number of {count} bytes"));
        }
        let Some((digits, rest)) = rest.split_at_checked(count) else {
            return Ok(None);
        };
        self.0 = rest;
        let mut number = 0;
        for digit in digits {
            number = number << 8 | u64::from(*digit);
        }
        Ok(Some(number))
    }

    fn uint(&mut self) -> Result<u64, String> {
        self.peek_uint()?
            .ok_or_else(|| "gob: a message ends early".to_owned())
    }

    fn int(&mut self) -> Result<i64, String> {
        let coded = self.uint()?;
        let half = i64::try_from(coded >> 1).unwrap_or(i64::MAX);
        Ok(if coded & 1 == 1 { !half } else { half })
    }

    fn counted(&mut self) -> Result<&'a [u8], String> {
        let len = usize::try_from(self.uint()?).unwrap_or(usize::MAX);
        let (bytes, rest) = self
            .0
            .split_at_checked(len)
            .ok_or("gob: a message ends early")?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Encodes the values of a stream.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Types that the stream has already described. The first type has the id [`FIRST`].
    known: Vec<&'static Shape>,
}

impl Encoder {
    /// Appends a value to `out`. If a type of the value is new in the stream, its description is
    /// appended first.
    pub fn push(&mut self, shape: &'static Shape, value: &Value, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        int(self.id(shape, out), &mut message);
        write(shape, value, &mut message);
        framed(&message, out);
    }

    /// Returns the id of a type. If the type is new in the stream, appends its description to
    /// `out`.
    fn id(&mut self, shape: &'static Shape, out: &mut Vec<u8>) -> i64 {
        let parts: Vec<(&str, &'static Shape)> = match shape {
            Shape::Uint => return UINT,
            Shape::Int => return INT,
            Shape::Bytes => return BYTES,
            Shape::Text => return TEXT,
            Shape::List(elem) => vec![("", elem)],
            Shape::Struct(_, fields) => fields.to_vec(),
        };
        let type_id = |place: usize| FIRST + i64::try_from(place).unwrap_or(i64::MAX);
        if let Some(place) = self
            .known
            .iter()
            .position(|known| std::ptr::eq(*known, shape))
        {
            return type_id(place);
        }
        self.known.push(shape);
        let id = type_id(self.known.len() - 1);
        let mut fields = Vec::with_capacity(parts.len());
        for (name, part) in parts {
            fields.push((name, self.id(part, out)));
        }
        framed(&definition(id, shape, &fields), out);
        id
    }
}

/// Encodes the description of a type.
fn definition(id: i64, shape: &Shape, parts: &[(&str, i64)]) -> Vec<u8> {
    let mut message = Vec::new();
    int(-id, &mut message);
    // Field 2 of a type describes a list, field 3 a struct. Both begin with the common part.
    match shape {
        Shape::List(_) => {
            uint(2, &mut message);
            uint(1, &mut message);
            common("", id, &mut message);
            uint(1, &mut message);
            int(parts[0].1, &mut message);
        }
        Shape::Struct(name, _) => {
            uint(3, &mut message);
            uint(1, &mut message);
            common(name, id, &mut message);
            if !parts.is_empty() {
                uint(1, &mut message);
                uint(parts.len() as u64, &mut message);
                for (name, id) in parts {
                    common(name, *id, &mut message);
                }
            }
        }
        Shape::Uint | Shape::Int | Shape::Bytes | Shape::Text => {}
    }
    message.extend([0, 0]);
    message
}

/// Encodes a struct with a name and a type id, such as gob's `CommonType`.
fn common(name: &str, id: i64, out: &mut Vec<u8>) {
    if name.is_empty() {
        uint(2, out);
    } else {
        uint(1, out);
        counted(name.as_bytes(), out);
        uint(1, out);
    }
    int(id, out);
    out.push(0);
}

fn write(shape: &Shape, value: &Value, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::Uint, Value::Uint(number)) => uint(*number, out),
        (Shape::Int, Value::Int(number)) => int(*number, out),
        (Shape::Bytes, Value::Bytes(bytes)) => counted(bytes, out),
        (Shape::Text, Value::Text(text)) => counted(text.as_bytes(), out),
        (Shape::List(elem), Value::List(items)) => {
            uint(items.len() as u64, out);
            for item in items {
                write(elem, item, out);
            }
        }
        (Shape::Struct(_, fields), value) => {
            let mut before = 0;
            for (at, (name, shape)) in (1..).zip(*fields) {
                if let Some(value) = value.get(name).filter(|value| !value.is_zero()) {
                    uint(at - before, out);
                    write(shape, value, out);
                    before = at;
                }
            }
            out.push(0);
        }
        // Callers pass values that match the type. Otherwise the reader gets a zero.
        (Shape::Uint | Shape::Int | Shape::Bytes | Shape::Text | Shape::List(_), _) => out.push(0),
    }
}

fn framed(message: &[u8], out: &mut Vec<u8>) {
    counted(message, out);
}

fn counted(bytes: &[u8], out: &mut Vec<u8>) {
    uint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn uint(number: u64, out: &mut Vec<u8>) {
    if number < 0x80 {
        out.push(number.to_be_bytes()[7]);
        return;
    }
    let digits = number.to_be_bytes();
    let from = digits.iter().position(|digit| *digit != 0).unwrap_or(7);
    let count = u8::try_from(8 - from).unwrap_or(8);
    out.push(count.wrapping_neg());
    out.extend_from_slice(&digits[from..]);
}

fn int(number: i64, out: &mut Vec<u8>) {
    let bits = number.cast_unsigned();
    uint(
        if number < 0 {
            !bits << 1 | 1
        } else {
            bits << 1
        },
        out,
    );
}

#[cfg(test)]
mod tests;
