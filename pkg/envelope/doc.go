// SPDX-License-Identifier: Apache-2.0

// Package envelope encrypts small values, such as a store's records, so that a reader of a disk or backup learns nothing of them.
//
// In: values, each with the name of its place. Out: envelopes: the value encrypted with a data key, and that key encrypted with a
// key-encryption key of a Provider, which is all that a reader needs.
//
//	envelope.go  the Sealer: data keys, format
//	keyfile.go   the Provider: keys in a file
//
// Rules:
//
//   - AES-256-GCM, random nonces. A data key is one process's and one key-encryption key's, for 2^30 values; because random nonces allow
//     2^32.
//   - Place and header are authenticated: a moved or changed envelope does not open (ErrDamaged).
//   - ErrNoKey and ErrWrongKey name the key, and tell a missing key from damage.
//   - Not hidden: places, lengths, names of keys. Not prevented: an older envelope put back in its place.
//   - The first key of a file encrypts, all decrypt. A KeyFile is reread; a new first key counts at once. A removed key decrypts until the
//     process ends; because a removal too early must not show under load.
//   - Another secret under a known name is refused.
package envelope
