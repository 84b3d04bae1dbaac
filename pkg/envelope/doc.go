// SPDX-License-Identifier: Apache-2.0

// Package envelope encrypts small values, such as a store's records, so that a reader of a disk or backup learns nothing about them.
//
// In: values, each with the name of its place. Out: envelopes. An envelope contains the value encrypted with a data key, and the data key
// encrypted with a key-encryption key of a Provider. A reader needs nothing but the Provider.
//
//	envelope.go  the Sealer: data keys, format
//	keyfile.go   the Provider: keys in a file
//
// Rules:
//
//   - AES-256-GCM with random nonces. A data key belongs to one process and one key-encryption key, and encrypts at most 2^30 values;
//     because random nonces allow 2^32: TestADataKeyIsReplacedInTime.
//   - Place and header are authenticated: a moved or changed envelope cannot be opened (ErrDamaged): TestAnEnvelopeOpensInItsPlaceAlone,
//     TestAChangedEnvelopeDoesNotOpen, FuzzOpen.
//   - ErrNoKey and ErrWrongKey name the key, and distinguish a missing key from damage: TestWithoutItsKey.
//   - Places, lengths and names of keys are not hidden. Replacing an envelope by an older one of the same place is not prevented.
//   - The first key of a file encrypts, all keys decrypt. A KeyFile is reread; a new first key is used immediately. A removed key still
//     decrypts until the process ends; because a key that is removed too early must not cause errors under load: TestRotation.
//   - A different secret under a known name is rejected: TestRotation.
//   - A file of keys is bounded, and no error quotes it: TestKeyFilesAreCheckedAndNotQuoted.
package envelope
