//! The C interface that the Go package github.com/daulet/tokenizers links to,
//! over the tokenizers crate. The upstream library needs a git dependency for
//! tiktoken files; this one builds from crates.io and leaves tiktoken out,
//! since turnlog reads such files in Go.
//!
//! It differs from upstream in one thing: text is in "modified UTF-8", where
//! the two bytes C0 80 stand for U+0000. They never occur in valid UTF-8, and a
//! C string ends at a real zero byte. Decoded text comes back in the same form.
//! The Go side finds out which library it is linked to by encoding C0 80.

use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

use libc::{c_void, size_t};
use tokenizers::tokenizer::{Tokenizer, TruncationDirection, TruncationParams};

const NUL: &[u8] = b"\xC0\x80";

/// The Go package refers to this symbol, so that another version does not link.
#[no_mangle]
pub extern "C" fn tokenizers_version_1_23_0() {}

#[no_mangle]
pub extern "C" fn tokenizers_version() -> *const c_char {
    c"1.23.0-turnlog".as_ptr()
}

#[repr(C)]
pub struct Options {
    encode_special_tokens: bool,
}

#[repr(C)]
pub struct EncodeOptions {
    add_special_tokens: bool,
    return_type_ids: bool,
    return_tokens: bool,
    return_special_tokens_mask: bool,
    return_attention_mask: bool,
    return_offsets: bool,
}

#[repr(C)]
pub struct Buffer {
    ids: *mut u32,
    type_ids: *mut u32,
    special_tokens_mask: *mut u32,
    attention_mask: *mut u32,
    tokens: *mut *mut c_char,
    offsets: *mut size_t,
    // uint32_t in the header; the two agree on little-endian machines.
    len: size_t,
}

impl Buffer {
    fn empty() -> Buffer {
        Buffer {
            ids: ptr::null_mut(),
            type_ids: ptr::null_mut(),
            special_tokens_mask: ptr::null_mut(),
            attention_mask: ptr::null_mut(),
            tokens: ptr::null_mut(),
            offsets: ptr::null_mut(),
            len: 0,
        }
    }
}

fn set_error(error: *mut *mut c_char, message: String) {
    if !error.is_null() {
        unsafe { *error = c_string(message.as_bytes()) };
    }
}

/// Runs f and turns an error or a panic into a message.
fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("the tokenizers library panicked".into()))
}

/// Text for C: zero bytes in their two-byte form.
fn c_string(text: &[u8]) -> *mut c_char {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    for &b in text {
        match b {
            0 => bytes.extend_from_slice(NUL),
            _ => bytes.push(b),
        }
    }
    CString::new(bytes).expect("no zero byte is left").into_raw()
}

/// Text from C. What is not UTF-8, even so, is replaced as upstream does.
fn rust_string(text: *const c_char) -> String {
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|w| w == NUL) {
        out.extend_from_slice(&rest[..at]);
        out.push(0);
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    String::from_utf8_lossy(&out).into_owned()
}

fn tokenizer<'a>(handle: *mut c_void) -> Option<&'a Tokenizer> {
    unsafe { handle.cast::<Tokenizer>().as_ref() }
}

fn opened(result: Result<Tokenizer, String>, error: *mut *mut c_char) -> *mut c_void {
    match result {
        Ok(t) => Box::into_raw(Box::new(t)).cast(),
        Err(message) => {
            set_error(error, message);
            ptr::null_mut()
        }
    }
}

#[no_mangle]
pub extern "C" fn tokenizers_from_bytes(bytes: *const u8, len: u32, options: &Options, error: *mut *mut c_char) -> *mut c_void {
    let result = guarded(|| {
        let data = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
        let mut t = Tokenizer::from_bytes(data).map_err(|e| e.to_string())?;
        t.set_encode_special_tokens(options.encode_special_tokens);
        Ok(t)
    });
    opened(result, error)
}

#[no_mangle]
pub extern "C" fn tokenizers_from_bytes_with_truncation(
    bytes: *const u8,
    len: u32,
    max_len: u32,
    direction: u8,
    error: *mut *mut c_char,
) -> *mut c_void {
    let result = guarded(|| {
        let data = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
        let mut t = Tokenizer::from_bytes(data).map_err(|e| e.to_string())?;
        let direction = match direction {
            0 => TruncationDirection::Left,
            1 => TruncationDirection::Right,
            d => return Err(format!("unknown truncation direction {d}")),
        };
        t.with_truncation(Some(TruncationParams { max_length: max_len as usize, direction, ..Default::default() }))
            .map_err(|e| e.to_string())?;
        Ok(t)
    });
    opened(result, error)
}

#[no_mangle]
pub extern "C" fn tokenizers_from_file(file: *const c_char, error: *mut *mut c_char) -> *mut c_void {
    let result = guarded(|| Tokenizer::from_file(rust_string(file)).map_err(|e| e.to_string()));
    opened(result, error)
}

#[no_mangle]
pub extern "C" fn tokenizers_from_tiktoken(
    _model: *const c_char,
    _config: *const c_char,
    _pattern: *const c_char,
    error: *mut *mut c_char,
) -> *mut c_void {
    set_error(error, "tiktoken files are not in this build: tokenizer/bpe reads them".into());
    ptr::null_mut()
}

/// Gives a list to C, which returns it to tokenizers_free_buffer. An empty list
/// is not null, so that null means an error.
fn leak<T>(list: Vec<T>) -> *mut T {
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[no_mangle]
pub extern "C" fn tokenizers_encode(handle: *mut c_void, text: *const c_char, options: &EncodeOptions) -> Buffer {
    let (Some(t), false) = (tokenizer(handle), text.is_null()) else {
        return Buffer::empty();
    };
    let Ok(encoding) = guarded(|| encode(t, rust_string(text), options)) else {
        return Buffer::empty();
    };
    let mut buffer = Buffer::empty();
    buffer.len = encoding.get_ids().len();
    buffer.ids = leak(encoding.get_ids().to_vec());
    if options.return_type_ids {
        buffer.type_ids = leak(encoding.get_type_ids().to_vec());
    }
    if options.return_special_tokens_mask {
        buffer.special_tokens_mask = leak(encoding.get_special_tokens_mask().to_vec());
    }
    if options.return_attention_mask {
        buffer.attention_mask = leak(encoding.get_attention_mask().to_vec());
    }
    if options.return_tokens {
        buffer.tokens = leak(encoding.get_tokens().iter().map(|s| c_string(s.as_bytes())).collect());
    }
    if options.return_offsets {
        buffer.offsets = leak(encoding.get_offsets().iter().flat_map(|&(start, end)| [start, end]).collect());
    }
    buffer
}

/// Offsets cost time, and only some callers want them.
fn encode(t: &Tokenizer, text: String, options: &EncodeOptions) -> Result<tokenizers::Encoding, String> {
    let encoding = if options.return_offsets {
        t.encode(text, options.add_special_tokens)
    } else {
        t.encode_fast(text, options.add_special_tokens)
    };
    encoding.map_err(|e| e.to_string())
}

#[no_mangle]
pub extern "C" fn tokenizers_decode(handle: *mut c_void, ids: *const u32, len: u32, skip_special_tokens: bool) -> *mut c_char {
    let Some(t) = tokenizer(handle) else {
        return ptr::null_mut();
    };
    let decoded = guarded(|| {
        let ids = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(ids, len as usize) } };
        t.decode(ids, skip_special_tokens).map_err(|e| e.to_string())
    });
    match decoded {
        Ok(text) => c_string(text.as_bytes()),
        Err(_) => ptr::null_mut(),
    }
}

#[no_mangle]
pub extern "C" fn tokenizers_vocab_size(handle: *mut c_void) -> u32 {
    tokenizer(handle).map_or(0, |t| t.get_vocab_size(true) as u32)
}

#[no_mangle]
pub extern "C" fn tokenizers_free_tokenizer(handle: *mut c_void) {
    if !handle.is_null() {
        drop(unsafe { Box::from_raw(handle.cast::<Tokenizer>()) });
    }
}

fn free_list<T>(list: *mut T, len: usize) {
    if !list.is_null() {
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
    }
}

#[no_mangle]
pub extern "C" fn tokenizers_free_buffer(buffer: Buffer) {
    free_list(buffer.ids, buffer.len);
    free_list(buffer.type_ids, buffer.len);
    free_list(buffer.special_tokens_mask, buffer.len);
    free_list(buffer.attention_mask, buffer.len);
    free_list(buffer.offsets, buffer.len * 2);
    if !buffer.tokens.is_null() {
        for i in 0..buffer.len {
            tokenizers_free_string(unsafe { *buffer.tokens.add(i) });
        }
        free_list(buffer.tokens, buffer.len);
    }
}

#[no_mangle]
pub extern "C" fn tokenizers_free_string(string: *mut c_char) {
    if !string.is_null() {
        drop(unsafe { CString::from_raw(string) });
    }
}
