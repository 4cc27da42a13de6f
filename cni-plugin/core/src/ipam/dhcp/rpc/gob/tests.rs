use super::*;

static POINT: Shape = Shape::Struct(
    "Point",
    &[("X", &Shape::Int), ("Name", &Shape::Text), ("Of", &NAMES)],
);
static NAMES: Shape = Shape::List(&NAME);
static NAME: Shape = Shape::Struct("Name", &[("Raw", &Shape::Bytes), ("Count", &Shape::Uint)]);

fn point(x: i64) -> Value {
    let name = Value::Struct(vec![
        ("Raw".into(), Value::Bytes(vec![1, 2])),
        ("Count".into(), Value::Uint(70_000)),
    ]);
    let children = Value::List(vec![name, Value::Struct(Vec::new())]);
    let fields = [
        ("X", Value::Int(x)),
        ("Name", Value::Text("ü".into())),
        ("Of", children),
    ];
    Value::Struct(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

#[test]
fn encoded_values_are_decoded_from_any_split_of_the_bytes() {
    let (mut stream, mut encoder) = (Vec::new(), Encoder::default());
    let values = [point(-3), point(i64::MAX), point(i64::MIN + 1)];
    for value in &values {
        encoder.push(&POINT, value, &mut stream);
    }
    let (mut decoder, mut read, mut buffer) = (Decoder::default(), Vec::new(), Vec::new());
    for byte in stream {
        buffer.push(byte);
        let (value, used) = decoder.next(&buffer).expect("a good stream");
        buffer.drain(..used);
        read.extend(value);
    }
    assert_eq!(read, values);
}

#[test]
fn truncated_or_changed_stream_is_an_error_or_waits_and_never_panics() {
    let (mut stream, mut encoder) = (Vec::new(), Encoder::default());
    encoder.push(&POINT, &point(1), &mut stream);
    for at in 0..stream.len() {
        let (value, used) = Decoder::default()
            .next(&stream[..at])
            .expect("what is there is good");
        assert!(value.is_none() && used <= at, "cut at {at}");
        for byte in [0, 1, 0x7f, 0x80, 0xf7, 0xff] {
            let mut twisted = stream.clone();
            twisted[at] = byte;
            let _ = Decoder::default().next(&twisted);
        }
    }
}
