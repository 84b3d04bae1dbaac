// SPDX-License-Identifier: Apache-2.0

// Package members is the only package that uses memberlist. It reports which replicas of a hub are alive, and the addresses of their peer
// ports.
//
// In: names to join, a keyring. Out: the live replicas: name, peer address, version, load. These are hints: package peers verifies a
// replica's identity by its certificate, and a wrong hint only costs a hop.
//
//   - Names are resolved periodically and their addresses are joined, so that separated parts of a federation find each other again:
//     TestReplicasFindEachOther.
//   - A replica that shuts down announces it; a replica that disappears is detected within seconds: TestAReplicaThatLeavesIsNoMember.
//   - With a keyring, gossip is encrypted, and replicas without one of its keys are ignored: TestGossipNeedsAKey. The file is reread. To
//     rotate: append a key everywhere, then move it to the first place everywhere, then remove the old one: TestKeysRotate.
//   - The metadata of a replica has at most 512 bytes, and invalid metadata is ignored: TestMetaIsBounded.
//   - Packets and streams from strangers are bounded before they reach memberlist (transport.go): TestI14GossipOfStrangersIsBounded.
package members
