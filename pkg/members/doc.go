// SPDX-License-Identifier: Apache-2.0

// Package members is the one home of memberlist: which replicas of a hub are alive, and where their peer ports are.
//
// In: names to join by, a keyring. Out: the live replicas: name, peer address, version, load. These are hints: package peers proves who a
// replica is by its certificate, and a wrong hint costs a hop.
//
//   - Names are resolved again and again, and what they lead to is joined, so that parts of a federation that lost each other meet
//     again: TestReplicasFindEachOther.
//   - A replica that ends says so; one that is gone is noticed within seconds: TestAReplicaThatLeavesIsNoMember.
//   - With a keyring, gossip is encrypted, and replicas without a key of it are not heard: TestGossipNeedsAKey. The file is reread: a key
//     is added at the end everywhere, then moved to the first place everywhere, then the old one is removed: TestKeysRotate.
//   - What a replica says about itself has 512 bytes at most, and what is not valid is ignored: TestMetaIsBounded.
//   - Packets and streams of strangers are bounded before they reach memberlist (transport.go): TestI14GossipOfStrangersIsBounded.
package members
