package gguf

// SetUint64 sets an unsigned integer of 64 bits, as other programs do.
func (w *Writer) SetUint64(key string, v uint64) {
	w.key(key, KindUint64)
	w.put(v)
}
