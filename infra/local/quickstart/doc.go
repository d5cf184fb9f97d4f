// Package quickstart embeds the NodePools and the EC2NodeClass that the local stack starts with.
package quickstart
