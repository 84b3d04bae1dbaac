// SPDX-License-Identifier: Apache-2.0

// Package authority is the hub's certificate authority: it lets clusters join, renews their certificates, and rotates the CA.
//
// In: requests to join, certificate requests of attached clusters, calls of operators. Out: certificates, including the hub's own (it is a
// link.Source), and the CAs that clusters must trust.
//
// # State
//
//   - One entry of the registry (hubstate.Authority) holds the CAs with their keys, the step of a rotation, invitations, and waiting
//     requests. Each change is one compare-and-swap, and replicas follow the entry: TestTwoReplicasShareARotation.
//   - The registry encrypts the entry if the hub has encryption keys. The registry's copy (package registrycopy: a Secret, or a file) also
//     has the CAs. It is written before a CA signs for a cluster; because a hub that lost its volume must keep the same CA:
//     TestTheCAOutlivesTheDataDirectory. So the hub needs no second Secret. With etcd there is no copy: back up etcd.
//   - The copy is not encrypted. In Kubernetes it is a Secret, whose readers and encryption at rest are the operator's concern; encryption
//     by the hub would need a key that would itself be in a Secret beside it. If the store is encrypted, there is no copy in a file by
//     default.
//   - A restored backup has no invitations; because a used invitation would be unused again.
//   - With certificate files, clusters must also trust the CAs of --tls-ca-file, in the file's current state: TestCAsOfFilesAreTakenUp. A
//     step of a rotation keeps the CAs that it was computed from; because the file may just be being written: TestCAsOfFilesAreReadOnce.
//   - A CA of the operator (--ca-cert-file) becomes part of the state. A newer one starts a rotation to it:
//     TestAnOperatorsIntermediateSigns.
//
// # Joining
//
//   - A token has the form atoll-join.v1.<CA hash>.<id>.<secret>. The state has the secret's SHA-256, compared in constant time. Every
//     refusal of a token has the same text: TestJoinRefusals.
//   - A token is used once. Its use, with kube-system uid and key, is durable before a certificate is signed. The same cluster with the
//     same key may use it again until it expires; because the response may have been lost.
//   - An invitation's scope becomes the cluster's scope with the first certificate. The invitation then loses its scope, as it does when an
//     operator sets another scope for the cluster; so a repeated use of the token reverts nothing: TestAnInvitationUndoesNoLaterScope. A
//     join in flight gets the scope that the invitation has when the record is written, and fails if the invitation was withdrawn:
//     TestAJoinInFlightMeetsWhatAnOperatorSaysMeanwhile.
//   - A cluster whose name is bound to another uid is refused. An invitation lifts a forget or a revocation only for the new key.
//   - A certificate request is signed by its key and names the cluster or nothing; the hub sets the name: TestRequests of package pki.
//   - The numbers of invitations and requests are bounded, and expired ones are removed (I14).
//   - A cluster gets four certificates at once, then one per tenth of their lifetime. A failed renewal does not count; because a hub that
//     cannot write for a while would leave clusters without a certificate: TestARenewalThatFailsIsNotCounted.
//   - A renewal fails if the certificate that asks for it is revoked before the new key is recorded: TestARenewalInFlightEndsWithARevoke.
//   - Certificates are backdated by an hour. Only the clock of the hub, which issued a certificate, decides whether it expires soon:
//     TestI11ClocksThatDifferByTenMinutes. The hub renews its own certificate by the wall clock:
//     TestTheHubsCertificateIsRenewedByTheWallClock.
//
// # Rotation
//
//	Stable → Distributing → Renewing → Dropping → Stable
//
// Rules:
//
//   - Each step is durable before its effects, and is resumed after a crash: TestARotationSurvivesAKillAtEachStep,
//     TestARotationOutlivesAKilledHubAtEachStep. One replica, the leader, drives the rotation, and another one after the leader's end:
//     TestReplicasCarryOnARotation. decideStep is pure.
//   - A skip names its step; because a late skip would otherwise skip the next step: TestASkipNamesItsStep.
//   - A step waits for the clusters whose certificates the hub renews, if they are attached, were attached within awayAfter (package
//     fleet), or the hub started less than awayAfter ago. Other clusters return by an invitation.
//   - The operator manages certificates from files: Status lists such clusters, and no step waits for them.
package authority
