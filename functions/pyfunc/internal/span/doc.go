// Package span reads JSON as spans of bytes: it says where values begin and end
// and that they are well formed, and decodes only the strings that somebody
// asks for, in place. A request of many megabytes is so read without a copy.
//
//	at := span.Begin(data)
//	end, err := span.Object(data, at, func(key []byte, at int) (end int, err error) {
//		return span.Skip(data, at) // or Decode, Object, Array
//	})
//	err = span.End(data, end)
//
// Who is called for a member or an item reads it, and returns where it ends: each
// byte is looked at once, unless somebody wants to look again.
//
// It accepts what RFC 8259 calls JSON, nested at most [MaxDepth] deep, and
// nothing else: no NaN, no trailing comma, no control character in a string. It
// does not look at UTF-8; who needs it asks utf8.Valid once for the whole.
//
// All functions are pure and safe for many goroutines, as far as the bytes that
// they are given belong to one of them.
package span
