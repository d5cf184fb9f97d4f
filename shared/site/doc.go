// Package site opens the clusters that a function is woken for: it reads how a cluster is reached, and keeps the client and the
// mirror of its state for the next wake-up, so that a warm function resumes watches instead of listing again.
package site
