// SPDX-License-Identifier: Apache-2.0

// Package quiet counts Atoll's writes to an API server at rest, and fills the server with many Envs and Pods for that.
//
// In goes a plane with an audit log and the stack on it. Out come the writes in a period of time, by writer and object. The
// small test here fails on any write at rest. The bench uses the same code with 1000 Envs and 10,000 Pods, for a given time.
//
// A lease renewal does not count. Writes of others, such as kubelets, are told apart by the user agent.
package quiet
