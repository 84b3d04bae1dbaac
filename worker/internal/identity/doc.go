// SPDX-License-Identifier: Apache-2.0

// Package identity keeps a worker's identity if a hub issues its certificate: a key that never leaves the cluster, the certificate, and the
// CAs by which the worker verifies its hub.
//
// In: a Store (the Secret atoll-worker-identity, or a directory), the file of an invitation, and what the hub sends over the link. Out: a
// link.Source, for the link and between the worker's replicas.
//
//	renew.go     the next certificate, and new CAs
//	join.go      the first certificate, by an invitation
//	identity.go  the certificate in use, on the leader and on the other replicas
//	store.go     the Secret, or a directory
//	metrics.go
//
// # Joining
//
//   - The key is stored before the first request; because an invitation is bound to the key that used it first, and a worker that has
//     crashed must be able to ask again: TestAKeyIsStoredBeforeItIsUsed.
//   - An invitation is used if there is no identity, or if the hub does not accept the identity. An invitation is used only once: its id is
//     stored with the certificate. A new token in the file ends the wait for the next attempt: TestANewInvitationIsTakenUp.
//
// # Renewing
//
//   - A new certificate is stored beside the old one, and replaces it when a hub has accepted a stream with it. If it is refused, the old
//     one is used again: TestARefusedCertificateGivesWayToTheOldOne. If it cannot be stored, storing is retried each second:
//     TestACertificateIsStoredOnceThatIsPossible of package agent.
//   - The hub asks for a renewal when 20 % of the lifetime is left by its clock. The worker asks at 15 % by its own. A clock that is off by
//     ten minutes (I11) then changes when a certificate is renewed, and never whether it is used: a worker never considers its own
//     certificate expired; its hub decides.
//
// # Writers
//
//   - Only the leader writes, with the version that it has read; the other replicas read again every few seconds. After a conflict the
//     loser reads what the winner wrote.
package identity
