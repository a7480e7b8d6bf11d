use super::*;
use plumbline_reference::format::{F16, F32};
use plumbline_reference::ops::Cast;
use plumbline_reference::{Path, Tensor, TensorType};

fn tensor(value: f32) -> Tensor {
    Tensor::from_codes(TensorType::new(F32, [2]), &[value.to_bits().into(); 2]).unwrap()
}

fn op() -> Op {
    Cast::new(F32, F16).into()
}

/// `x` and `y`, and one that nothing is done with.
fn buffers(engine: &Engine) -> [Buffer; 3] {
    let alloc = |format| engine.alloc(&Layout::contiguous(TensorType::new(format, [2]))).unwrap();
    [alloc(F32), alloc(F16), alloc(F32)]
}

fn launch(engine: &Engine, x: &Buffer, y: &Buffer, stream: u32) {
    let (op, stream) = (op(), Stream(stream));
    let call = Launch { op: &op, variant: VARIANTS[0], inputs: &[x], outputs: &[y], stream };
    engine.launch(call).unwrap();
}

fn bits(buffer: &Buffer) -> Vec<u8> {
    let block = buffer.memory::<Block>().unwrap();
    locked(&block.runtime).arena.bytes(block.address, buffer.layout().total().unwrap()).to_vec()
}

fn right(value: f32) -> Vec<u8> {
    op().evaluate(&[tensor(value)], Path::Definition).unwrap()[0].bytes().to_vec()
}

#[test]
fn nothing_is_done_before_somebody_waits() {
    let engine = Engine::new();
    let [x, y, _] = buffers(&engine);
    engine.upload(&x, tensor(3.0).bytes()).unwrap();
    launch(&engine, &x, &y, 0);
    assert_eq!((bits(&x), bits(&y)), (vec![0; 8], vec![0; 4]));
    engine.wait(Some(Stream(1))).unwrap();
    // Stream 1 waits for the upload, and for nothing that came after it.
    assert_eq!((bits(&x), bits(&y)), (tensor(3.0).bytes().to_vec(), vec![0; 4]));
    engine.wait(Some(Stream(0))).unwrap();
    assert_eq!(bits(&y), right(3.0));
}

#[test]
fn what_was_queued_last_is_done_first_unless_it_is_ordered() {
    for ordered in [false, true] {
        let engine = Engine::new();
        let [x, y, z] = buffers(&engine);
        engine.upload(&x, tensor(3.0).bytes()).unwrap();
        let back: Op = Cast::new(F16, F32).into();
        launch(&engine, &x, &y, 1);
        if ordered {
            engine.order(Stream(1), Stream(0)).unwrap();
        }
        let call =
            Launch { op: &back, variant: VARIANTS[0], inputs: &[&y], outputs: &[&z], stream: Stream(0) };
        engine.launch(call).unwrap();
        let expected = if ordered { tensor(3.0) } else { tensor(0.0) };
        assert_eq!(engine.download(&z).unwrap(), expected.bytes());
    }
}

#[test]
fn memory_is_used_again_and_a_runtime_ends_with_its_last_buffer() {
    let engine = Engine::new();
    let [x, y, z] = buffers(&engine);
    let address = engine.address(&x);
    launch(&engine, &x, &y, 0);
    drop(x);
    // Freeing waits.
    assert_eq!(bits(&y), right(0.0));
    let [again, _, _] = buffers(&engine);
    assert_eq!(engine.address(&again), address);
    let runtime = Arc::downgrade(&y.memory::<Block>().unwrap().runtime);
    drop((again, y));
    assert!(runtime.upgrade().is_some());
    drop(z);
    assert!(runtime.upgrade().is_none());
}

#[test]
fn buffers_of_two_runtimes_do_not_go_together() {
    let (one, other) = (Engine::new(), Engine::new());
    let ([x, ..], [_, y, _]) = (buffers(&one), buffers(&other));
    let op = op();
    let call = Launch { op: &op, variant: VARIANTS[0], inputs: &[&x], outputs: &[&y], stream: Stream(0) };
    assert_eq!(one.launch(call), Err(BackendError::ForeignBuffer));
    assert!(matches!(one.launch(Launch { variant: "fast", ..call }), Err(BackendError::Variant { .. })));
    let absent = one.launch(Launch { outputs: &[&buffers(&one)[1]], stream: Stream(2), ..call });
    assert!(matches!(absent, Err(BackendError::Unsupported(_))));
    let refused = one.upload(&x, &[0; 7]);
    assert_eq!(refused, Err(BackendError::BufferSize { given: 7, expected: 8 }));
}
