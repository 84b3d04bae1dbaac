// SPDX-License-Identifier: Apache-2.0

// Package allowed decides which images a claim may name, and which containers and ports a caller can reach. It is pure.
//
// In: the annotations allowed-images and allowed-containers of an Env, a template or a pool. Out: Lists, and the only three decisions:
// Image, Container and Port.
//
//	allowed.go  annotations into Lists
//	image.go    patterns, and Image
//	reach.go    Container and Port
//
// # Rules
//
//   - Without a list a claim may name its template's image and idle image. docs/envs.md has the patterns.
//   - References are parsed as kubelets do: nginx is docker.io/library/nginx:latest. Registries are compared as written. An image with a
//     digest has no tag: TestI14Images, TestPatterns.
//   - Callers can reach the Pod's first container, which is the sandbox's, and listed ones: TestI14Containers.
//   - Ports of a Pod on its node's network are refused, for hooks too: TestI14PortsOfTheNode. Other ports are open; because containers
//     share a network.
//   - A list has at most 64 patterns of 512 characters, or 16 containers. A list with a fault allows nothing, and the message names the
//     line: TestFaultyListsAllowNothing. The lists of Env and template add up.
package allowed
