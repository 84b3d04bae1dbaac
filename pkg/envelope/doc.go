// SPDX-License-Identifier: Apache-2.0

// Package envelope encrypts small values, such as a store's records, so that a reader of a disk or a backup learns nothing of them.
//
// In go values, each with the name of its place. Out come envelopes: the value, encrypted with a data key, together with that data
// key, encrypted with a key-encryption key of a Provider. A holder of the key-encryption key can read an envelope, and needs
// nothing else: no table of data keys can be lost, or get out of step with a restored file.
//
//	envelope.go  the Sealer: data keys, and the format of an envelope
//	keyfile.go   the Provider of this package: keys in a file
//
// # What holds
//
//   - Encryption is AES-256-GCM with random nonces. A data key is made for each process and each change of the key-encryption key,
//     and replaced after 2^30 values, well within the 2^32 that random nonces allow.
//   - The name of the place and the header are authenticated. An envelope that is moved to another place, or changed, does not
//     open (ErrDamaged).
//   - ErrNoKey and ErrWrongKey name the missing key, and tell a missing key from damage.
//   - Not hidden: names of places, the length of a value, and the name of its key. Not prevented: a writer of the disk can put an
//     older envelope back in its own place.
//
// # Rotation
//
// The first key of a file encrypts, all of them decrypt. A KeyFile is reread: a new first key is used at once. A key that is no
// longer in the file decrypts until the process ends, so that a removal that came too early is noticed at a restart and not under
// load. A name keeps its key: another secret under a known name is refused.
package envelope
