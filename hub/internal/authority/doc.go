// SPDX-License-Identifier: Apache-2.0

// Package authority is the hub's certificate authority: it lets clusters join, renews their certificates, and rotates the CA.
//
// In: requests to join, certificate requests of attached clusters, calls of operators. Out: certificates, the hub's own as well (it is a
// link.Source), and the CAs that clusters are to trust.
//
// # State
//
//   - One entry of the registry holds the CAs with their keys, the step of a rotation, invitations and requests that wait
//     (hubstate.Authority). Each change is one swap; replicas follow the entry: TestTwoReplicasShareARotation.
//   - The registry encrypts it if the hub has encryption keys. The registry's copy (package registrycopy: a Secret, or a file) has the CAs
//     as well, and is written before a CA signs for a cluster; because a hub that lost its volume must be the same CA:
//     TestTheCAOutlivesTheDataDirectory. So the hub needs no second Secret. With etcd there is no copy: back up etcd.
//   - The copy is in clear. In Kubernetes that is what a Secret is for, whose readers and encryption at rest are the operator's; a seal
//     would
//     need a key whose own place is a Secret beside it. Where the store is encrypted there is no copy in a file by default.
//   - Invitations are in no backup that is restored; because one that was used would be unused again.
//   - Beside certificate files, clusters are to trust the CAs of --tls-ca-file as well, as they are in the file now:
//     TestCAsOfFilesAreTakenUp.
//   - A CA that the operator gives (--ca-cert-file) is taken into the state; a newer one begins a rotation to it:
//     TestAnOperatorsIntermediateSigns.
//
// # Joining
//
//   - A token is atoll-join.v1.<CA hash>.<id>.<secret>. The state has the secret's SHA-256, compared in constant time. Every refusal of a
//     token has the same text: TestJoinRefusals.
//   - It is used once: its use, by kube-system uid and key, is durable before a certificate is signed. The same cluster with the same key
//     may use it again until it expires; because the response may have been lost.
//   - Its scope is the cluster's with the first certificate, and is dropped then, as by an operator's later word about the scope; so a use
//     that is repeated undoes nothing: TestAnInvitationUndoesNoLaterScope.
//   - A name that is bound to another uid is refused. An invitation lifts a forget or a revocation for the new key alone.
//   - A certificate request is signed by its key and names the cluster or nothing; the hub sets the name: TestRequests of package pki.
//   - Invitations and requests are bounded, and swept when they expire (I14).
//   - A cluster gets four certificates at once, then one in a tenth of their life. A renewal that fails counts for none; because a hub that
//     cannot write for a while would leave clusters without a certificate: TestARenewalThatFailsIsNotCounted.
//   - Certificates are backdated by an hour; whether one ends soon is decided by the hub's clock alone, which issued it:
//     TestI11ClocksThatDifferByTenMinutes. The hub renews its own by the wall clock: TestTheHubsCertificateIsRenewedByTheWallClock.
//
// # Rotation
//
//		Stable → Distributing → Renewing → Dropping → Stable
//
//	  - Each step is durable before its effects, and is resumed after a crash: TestARotationSurvivesAKillAtEachStep,
//	    TestARotationOutlivesAKilledHubAtEachStep. One replica drives it (an office), another one after its end:
//	    TestReplicasCarryOnARotation. decideStep is pure.
//	  - A skip names its step; because a late one would be for the next: TestASkipNamesItsStep.
//	  - A step waits for the clusters that the hub renews, of those that are attached, or were within awayAfter, or may be back since the hub
//	    started. Others come back by an invitation.
//	  - Certificates from files are the operator's: such clusters are listed, and not waited for.
package authority
