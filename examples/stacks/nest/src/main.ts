import "reflect-metadata";
import { Logger } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { logEvents } from "txbox";
import { nestLogger } from "txbox/nestjs";
import { AppModule } from "./app.module.js";

async function main(): Promise<void> {
  logEvents({ logger: nestLogger(new Logger("txbox")) });
  const app = await NestFactory.create(AppModule, { abortOnError: false });
  app.enableShutdownHooks();
  await app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
  console.log(`listening on ${await app.getUrl()}`);
}

void main();
