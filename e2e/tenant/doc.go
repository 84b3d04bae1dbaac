// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command tenant runs in the test images as a sandbox's program: tests ask it what it sees, and make it leave data behind. It
// is one static binary, for images without anything else in them.
//
//	tenant [-port 8000] [-tag NAME] serve   serve the paths below until terminated (the default)
//	tenant exit CODE                        end at once
//	tenant linger                           do nothing, for ever
//
// Images differ by -tag, set in the entrypoint or at build time (-ldflags "-X main.tag=NAME").
//
//	/whoami                    {"tag","hostname","pid","uid","started","boot"}: boot differs for every process
//	/write?path=&data=         write a file
//	/fill?path=&mebibytes=     write a large file
//	/read?path=                the content of a file; 404 if it does not exist
//	/xattr?path=[&data=]       write, or read, an extended attribute of a file
//	/listen?port=              open another listening socket, which serves the same paths
//	/spawn                     leave a process in its own session; returns its pid
//	/ps                        [{"pid","command"}] as /proc lists them
//	/ipc?kind=&key=[&data=]    leave data in an IPC object, or read it (404: no data)
//	                           kind: shm, sem (one byte), msg (System V), mq (POSIX message queue)
//	/oom                       take memory until the kernel kills the process
//	/exit?code=                end
package main
