// SPDX-License-Identifier: Apache-2.0

// Package allowed says which images a claim may name, and which containers and ports a caller reaches. It is pure.
//
// In: the annotations allowed-images and allowed-containers of an Env, a template or a pool. Out: Lists, and three decisions:
// Image, Container and Port. Everything that gives an image, a container or a port goes through them.
//
//	allowed.go  annotations into Lists
//	image.go    patterns of images, and Image
//	reach.go    Container and Port
//
// # Images
//
// Without a list a claim may name the images of its pool's template: the sandbox's own, and the idle one. A list has one pattern a
// line:
//
//	registry.example/team/app:v1             that tag
//	registry.example/team/app@sha256:…       that digest
//	registry.example/team/app                the repository: any tag or digest
//	registry.example/team/*                  every repository that begins so; the registry is named in full
//	*                                        every image
//	…@sha256:*                               after a repository or a *: by digest alone
//
// References are parsed by the library that kubelets and containerd use, with its defaults: nginx is docker.io/library/nginx:latest.
// Names of registries are compared as they are written; because a list that misses an image refuses it, and one in capitals is
// refused as a pattern. An image with a digest has no tag: a pattern with a tag does not allow it. TestI14Images, TestPatterns.
//
// # Containers
//
// Callers reach the Pod's first container, whose image is the sandbox's. A list names others: TestI14Containers. The owner of a
// port cannot be told; because all containers of a Pod have one network. Those of a Pod on its node's network are refused, for
// post-start hooks as well: TestI14PortsOfTheNode.
//
// # Bounds
//
// A list has at most 64 patterns of 512 characters, or 16 containers. A list with a fault allows nothing, and the fault names the
// line: TestFaultyListsAllowNothing. The Env and the template of a pool add up.
package allowed
